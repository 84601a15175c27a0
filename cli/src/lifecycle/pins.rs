//! Pinning, unpinning and deleting one checkpoint.

use highwater::ErrorKind;
use serde::Serialize;

use crate::args::{OneCheckpointArgs, PinArgs};
use crate::backend::{Context, Peek, failure, root_log};
use crate::console;
use crate::exit::{Failure, Outcome};

/// What `pin` and `unpin` print.
#[derive(Debug, Serialize)]
struct PinReport {
    checkpoint: String,
    pin: String,
}

/// What `delete` prints.
#[derive(Debug, Serialize)]
struct DeleteReport {
    condemned: String,
}

/// `checkpoints pin`. Pinning what is pinned by that name already is no error.
///
/// # Errors
///
/// No such checkpoint, or it is condemned (3); the name holds another one, or is none a pin can have (2).
pub fn pin(args: &PinArgs) -> Outcome<()> {
    let peek = Peek::at(&args.url)?;
    let (store, state) = peek.job()?;
    let id = state.named(&args.id).outcome()?.id();
    root_log(store).pin(&args.name, id).map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists => Failure::usage(error.to_string()),
        _ => failure(&error),
    })?;
    told(args, &id.to_string(), "pinned", "it stays until it is unpinned")
}

/// `checkpoints unpin`.
///
/// # Errors
///
/// No such checkpoint or pin (3); the pin holds another checkpoint, or is that of a restore (2).
pub fn unpin(args: &PinArgs) -> Outcome<()> {
    let peek = Peek::at(&args.url)?;
    let (store, state) = peek.job()?;
    let id = state.named(&args.id).outcome()?.id();
    match root_log(store).unpin_from(&args.name, id) {
        // The checkpoint is there: it is the name that is wrong.
        Err(error) if error.kind() == ErrorKind::NotFound => return Err(Failure::usage(error.to_string())),
        unpinned => unpinned.outcome()?,
    }
    told(args, &id.to_string(), "unpinned", "retention decides what becomes of it")
}

fn told(args: &PinArgs, id: &str, done: &str, then: &str) -> Outcome<()> {
    if args.json {
        return console::json_line(&PinReport { checkpoint: id.to_owned(), pin: args.name.clone() });
    }
    console::table(&format!("checkpoint {id} {done} as `{}`: {then}\n", args.name))
}

/// `checkpoints delete`.
///
/// # Errors
///
/// No such checkpoint (3); somebody may go on from it (2).
pub fn delete(args: &OneCheckpointArgs) -> Outcome<()> {
    let peek = Peek::at(&args.url)?;
    let (store, state) = peek.job()?;
    let id = state.named(&args.id).outcome()?.id();
    root_log(store).condemn(id).outcome()?;
    if args.json {
        return console::json_line(&DeleteReport { condemned: id.to_string() });
    }
    console::table(&format!(
        "checkpoint {id} can't be restored from any more; its bytes go with the next gc after the grace period\n"
    ))
}
