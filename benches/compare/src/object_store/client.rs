//! The client that all stores use, and what it counts.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::thread::ThreadId;

use serde::{Deserialize, Serialize};

use super::{Request, Status};
use crate::Result;

/// What was asked for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Puts.
    pub puts: u64,
    /// Gets, of ranges and lengths too.
    pub gets: u64,
    /// Lists.
    pub lists: u64,
    /// Deletes, which cost nothing.
    pub deletes: u64,
    /// State uploaded.
    pub state_bytes: u64,
    /// Manifests, logs and other metadata uploaded.
    pub manifest_bytes: u64,
    /// Downloaded.
    pub read_bytes: u64,
}

impl Counts {
    /// What came after `earlier`.
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            puts: self.puts - earlier.puts,
            gets: self.gets - earlier.gets,
            lists: self.lists - earlier.lists,
            deletes: self.deletes - earlier.deletes,
            state_bytes: self.state_bytes - earlier.state_bytes,
            manifest_bytes: self.manifest_bytes - earlier.manifest_bytes,
            read_bytes: self.read_bytes - earlier.read_bytes,
        }
    }
}

/// One of several requests made at one time.
#[derive(Debug, Clone, Copy)]
pub enum Ask<'a> {
    /// Stores metadata.
    Put {
        /// Of the object.
        name: &'a str,
        /// All of it.
        bytes: &'a [u8],
        /// Only if there is none of that name.
        create: bool,
    },
    /// An object, or bytes `range` of it.
    Get {
        /// Of the object.
        name: &'a str,
        /// First and behind the last.
        range: Option<(u64, u64)>,
    },
    /// Removes an object, if it is there.
    Delete {
        /// Of the object.
        name: &'a str,
    },
}

/// A client with as many connections as there are requests at one time.
#[derive(Debug)]
pub struct Client {
    address: SocketAddr,
    idle: Mutex<Vec<TcpStream>>,
    puts: AtomicU64,
    gets: AtomicU64,
    lists: AtomicU64,
    deletes: AtomicU64,
    state_bytes: AtomicU64,
    manifest_bytes: AtomicU64,
    read_bytes: AtomicU64,
    by_thread: Mutex<HashMap<ThreadId, u64>>,
}

impl Client {
    /// Of the server at `address`. Connects when it has to.
    pub fn new(address: SocketAddr) -> Self {
        Self {
            address,
            idle: Mutex::default(),
            puts: AtomicU64::new(0),
            gets: AtomicU64::new(0),
            lists: AtomicU64::new(0),
            deletes: AtomicU64::new(0),
            state_bytes: AtomicU64::new(0),
            manifest_bytes: AtomicU64::new(0),
            read_bytes: AtomicU64::new(0),
            by_thread: Mutex::default(),
        }
    }

    /// Counts so far.
    pub fn counts(&self) -> Counts {
        Counts {
            puts: self.puts.load(Relaxed),
            gets: self.gets.load(Relaxed),
            lists: self.lists.load(Relaxed),
            deletes: self.deletes.load(Relaxed),
            state_bytes: self.state_bytes.load(Relaxed),
            manifest_bytes: self.manifest_bytes.load(Relaxed),
            read_bytes: self.read_bytes.load(Relaxed),
        }
    }

    /// Requests of the calling thread, each of which waited for the one before, those made at one time counted as one; and
    /// the most of any other thread.
    pub fn chains(&self) -> (u64, u64) {
        let own = std::thread::current().id();
        let by_thread = self.by_thread.lock().unwrap_or_else(PoisonError::into_inner);
        let others = by_thread.iter().filter(|(thread, _)| **thread != own).map(|(_, count)| *count);
        (by_thread.get(&own).copied().unwrap_or(0), others.max().unwrap_or(0))
    }

    /// Stores an object in chunks; an error among them leaves nothing behind.
    pub fn put<B: AsRef<[u8]>, E: Into<crate::Error>>(
        &self,
        name: &str,
        chunks: impl Iterator<Item = std::result::Result<B, E>>,
        create: bool,
        is_state: bool,
    ) -> Result<Status> {
        self.puts.fetch_add(1, Relaxed);
        let sent = if is_state { &self.state_bytes } else { &self.manifest_bytes };
        let (status, _) = self.ask(Request::Put, u8::from(create), name, (0, 0), |connection| {
            for chunk in chunks {
                match chunk {
                    Ok(chunk) if chunk.as_ref().is_empty() => {}
                    Ok(chunk) => {
                        let chunk = chunk.as_ref();
                        sent.fetch_add(chunk.len() as u64, Relaxed);
                        connection.write_all(&u32::try_from(chunk.len())?.to_le_bytes())?;
                        connection.write_all(chunk)?;
                    }
                    Err(error) => {
                        connection.write_all(&u32::MAX.to_le_bytes())?;
                        return Ok(Some(error.into()));
                    }
                }
            }
            connection.write_all(&0_u32.to_le_bytes())?;
            Ok(None)
        })?;
        Ok(status)
    }

    /// An object, or bytes `range` of it.
    pub fn get(&self, name: &str, range: Option<(u64, u64)>) -> Result<(Status, Vec<u8>)> {
        self.gets.fetch_add(1, Relaxed);
        let request = if range.is_some() { Request::GetRange } else { Request::Get };
        let (status, bytes) = self.ask(request, 0, name, range.unwrap_or_default(), |_| Ok(None))?;
        self.read_bytes.fetch_add(bytes.len() as u64, Relaxed);
        Ok((status, bytes))
    }

    /// Several requests at one time: each on a connection of its own, so that together they are one step of a chain.
    pub fn together(&self, asks: &[Ask<'_>]) -> Vec<Result<(Status, Vec<u8>)>> {
        self.step();
        let sent: Vec<_> = asks.iter().map(|ask| self.begin(ask)).collect();
        let answers = sent.into_iter().map(|connection| {
            let mut connection = connection?;
            let answer = receive(&mut connection)?;
            self.give_back(connection);
            self.read_bytes.fetch_add(answer.1.len() as u64, Relaxed);
            Ok(answer)
        });
        answers.collect()
    }

    fn begin(&self, ask: &Ask<'_>) -> Result<TcpStream> {
        let mut connection = self.connection()?;
        match ask {
            Ask::Put { name, bytes, create } => {
                self.puts.fetch_add(1, Relaxed);
                self.manifest_bytes.fetch_add(bytes.len() as u64, Relaxed);
                send(&mut connection, Request::Put, u8::from(*create), name, (0, 0))?;
                if !bytes.is_empty() {
                    connection.write_all(&u32::try_from(bytes.len())?.to_le_bytes())?;
                    connection.write_all(bytes)?;
                }
                connection.write_all(&0_u32.to_le_bytes())?;
            }
            Ask::Get { name, range } => {
                self.gets.fetch_add(1, Relaxed);
                let request = if range.is_some() { Request::GetRange } else { Request::Get };
                send(&mut connection, request, 0, name, range.unwrap_or_default())?;
            }
            Ask::Delete { name } => {
                self.deletes.fetch_add(1, Relaxed);
                send(&mut connection, Request::Delete, 0, name, (0, 0))?;
            }
        }
        Ok(connection)
    }

    /// Length of an object.
    pub fn length(&self, name: &str) -> Result<(Status, u64)> {
        self.gets.fetch_add(1, Relaxed);
        let (status, bytes) = self.ask(Request::Length, 0, name, (0, 0), |_| Ok(None))?;
        Ok((status, bytes.first_chunk::<8>().map_or(0, |word| u64::from_le_bytes(*word))))
    }

    /// Name, length and time of the objects whose name starts so.
    pub fn list(&self, prefix: &str) -> Result<Vec<(String, u64, i64)>> {
        self.lists.fetch_add(1, Relaxed);
        let (_, bytes) = self.ask(Request::List, 0, prefix, (0, 0), |_| Ok(None))?;
        String::from_utf8(bytes)?
            .lines()
            .map(|line| {
                let mut parts = line.split('\t');
                let mut next = || parts.next().ok_or("a line of a list ends early");
                Ok((next()?.to_owned(), next()?.parse()?, next()?.parse()?))
            })
            .collect()
    }

    /// Removes an object, if it is there.
    pub fn delete(&self, name: &str) -> Result<Status> {
        self.deletes.fetch_add(1, Relaxed);
        Ok(self.ask(Request::Delete, 0, name, (0, 0), |_| Ok(None))?.0)
    }

    /// Has the server answer nothing for so long.
    pub fn hang(&self, milliseconds: u64) -> Result<()> {
        let mut connection = self.connect()?;
        send(&mut connection, Request::Hang, 0, "", (milliseconds, 0))?;
        receive(&mut connection)?;
        Ok(())
    }

    fn connect(&self) -> Result<TcpStream> {
        let connection = TcpStream::connect(self.address)?;
        connection.set_nodelay(true)?;
        Ok(connection)
    }

    fn ask(
        &self,
        request: Request,
        mode: u8,
        name: &str,
        numbers: (u64, u64),
        body: impl FnOnce(&mut TcpStream) -> Result<Option<crate::Error>>,
    ) -> Result<(Status, Vec<u8>)> {
        self.step();
        let mut connection = self.connection()?;
        send(&mut connection, request, mode, name, numbers)?;
        let failed = body(&mut connection)?;
        let answer = receive(&mut connection)?;
        self.give_back(connection);
        failed.map_or(Ok(answer), Err)
    }

    /// The calling thread makes a request, or several at one time.
    fn step(&self) {
        let mut by_thread = self.by_thread.lock().unwrap_or_else(PoisonError::into_inner);
        *by_thread.entry(std::thread::current().id()).or_default() += 1;
    }

    fn connection(&self) -> Result<TcpStream> {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        idle.map_or_else(|| self.connect(), Ok)
    }

    fn give_back(&self, connection: TcpStream) {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(connection);
    }
}

fn send(connection: &mut TcpStream, request: Request, mode: u8, name: &str, numbers: (u64, u64)) -> Result<()> {
    let mut head = vec![request as u8, mode];
    head.extend_from_slice(&u16::try_from(name.len())?.to_le_bytes());
    head.extend_from_slice(&numbers.0.to_le_bytes());
    head.extend_from_slice(&numbers.1.to_le_bytes());
    head.extend_from_slice(name.as_bytes());
    Ok(connection.write_all(&head)?)
}

fn receive(connection: &mut TcpStream) -> Result<(Status, Vec<u8>)> {
    let mut head = [0; 9];
    connection.read_exact(&mut head)?;
    let length = head[1..].iter().rev().fold(0_u64, |n, b| n << 8 | u64::from(*b));
    let mut bytes = vec![0; usize::try_from(length)?];
    connection.read_exact(&mut bytes)?;
    Ok((Status::of(head[0]), bytes))
}
