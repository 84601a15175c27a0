//! The states of a backend: registration, and the rule that two incarnations must agree.

use std::collections::HashMap;
use std::sync::Arc;

use crate::base::descriptor::{Layout, StateDescriptor};
use crate::base::ids::StateId;
use crate::base::key::KeyShape;
use crate::base::limits::MAX_NAME_BYTES;
use crate::base::merge_operator::{MergeOperator, MergeOperators};
use crate::read::Shapes;
use crate::{Error, ErrorKind, Result};

/// Token of a registered state. It borrows nothing; using it with another backend is an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RawState {
    pub(super) id: StateId,
    pub(super) index: u32,
}

impl RawState {
    /// The id that follows from the state's name.
    #[must_use]
    pub fn id(self) -> StateId {
        self.id
    }
}

/// A state, and beside it what every operation on it asks for.
#[derive(Debug, Clone)]
pub struct Known {
    pub id: StateId,
    pub layout: Layout,
    pub shape: KeyShape,
    pub ttl_ms: Option<u64>,
    pub descriptor: Arc<StateDescriptor>,
}

impl Known {
    fn new(descriptor: StateDescriptor) -> Self {
        Self {
            id: descriptor.id(),
            layout: descriptor.layout,
            shape: descriptor.shape,
            ttl_ms: descriptor.ttl_ms,
            descriptor: Arc::new(descriptor),
        }
    }
}

/// What background work needs to know of the states: descriptors and operators as of one moment.
#[derive(Debug, Clone, Default)]
pub struct StateTable {
    known: Vec<Known>,
    by_id: HashMap<StateId, u32>,
    operators: MergeOperators,
    shapes: Shapes,
}

impl StateTable {
    /// The states that restored manifests describe; their operators come with registration.
    pub fn restored(descriptors: impl IntoIterator<Item = StateDescriptor>) -> Result<Self> {
        let mut table = Self::default();
        for descriptor in descriptors {
            match table.find(&descriptor)? {
                Some(index) => table.check_same(index, &descriptor)?,
                None => {
                    table.add(descriptor)?;
                }
            }
        }
        Ok(table)
    }

    /// Registers a state, or finds it again.
    pub fn register(
        &mut self,
        descriptor: StateDescriptor,
        operator: Option<Arc<dyn MergeOperator>>,
    ) -> Result<RawState> {
        check_descriptor(&descriptor, operator.as_deref())?;
        let id = descriptor.id();
        let index = match self.find(&descriptor)? {
            Some(index) => {
                self.check_same(index, &descriptor)?;
                if let Some(slot) = self.known.get_mut(index as usize) {
                    *slot = Known::new(descriptor);
                }
                index
            }
            None => self.add(descriptor)?,
        };
        if let Some(operator) = operator {
            self.operators.insert(id, operator);
        }
        Ok(RawState { id, index })
    }

    /// The state behind a token.
    #[inline]
    pub fn get(&self, state: RawState) -> Result<&Known> {
        match self.known.get(state.index as usize) {
            Some(known) if known.id == state.id => Ok(known),
            _ => Err(foreign_token(state)),
        }
    }

    /// All descriptors, in order of registration.
    pub fn descriptors(&self) -> impl Iterator<Item = &StateDescriptor> {
        self.known.iter().map(|known| &*known.descriptor)
    }

    /// The registered merge operators.
    pub fn operators(&self) -> &MergeOperators {
        &self.operators
    }

    /// How the keys of each state are built.
    pub fn shapes(&self) -> &Shapes {
        &self.shapes
    }

    fn find(&self, descriptor: &StateDescriptor) -> Result<Option<u32>> {
        let Some(index) = self.by_id.get(&descriptor.id()) else { return Ok(None) };
        match self.known.get(*index as usize).map(|known| &known.descriptor) {
            Some(known) if known.name == descriptor.name => Ok(Some(*index)),
            Some(known) => Err(Error::invalid(format!(
                "states `{}` and `{}` have the same id {:08x}: rename one",
                known.name,
                descriptor.name,
                descriptor.id().0
            ))),
            None => Err(Error::internal("state table index out of range")),
        }
    }

    fn add(&mut self, descriptor: StateDescriptor) -> Result<u32> {
        let index = u32::try_from(self.known.len())
            .map_err(|_| Error::new(ErrorKind::ResourceExhausted, "more than 2^32 states"))?;
        self.by_id.insert(descriptor.id(), index);
        self.shapes.insert(descriptor.id(), descriptor.shape, descriptor.layout);
        self.known.push(Known::new(descriptor));
        Ok(index)
    }

    /// A state may come back with another TTL; everything else decides how its bytes are read.
    fn check_same(&self, index: u32, new: &StateDescriptor) -> Result<()> {
        let Some(old) = self.known.get(index as usize).map(|known| &known.descriptor) else {
            return Err(Error::internal("state table index out of range"));
        };
        let comparable = StateDescriptor { ttl_ms: old.ttl_ms, ..new.clone() };
        if **old == comparable && old.ttl_ms.is_some() == new.ttl_ms.is_some() {
            return Ok(());
        }
        Err(Error::invalid(format!("state `{}` is {}, registered again as {}", old.name, describe(old), describe(new))))
    }
}

#[cold]
fn foreign_token(state: RawState) -> Error {
    Error::invalid(format!("state token {:08x} belongs to another backend", state.id.0))
}

fn describe(d: &StateDescriptor) -> String {
    format!(
        "{} ({:?}, codecs [{}], widths {:?}/{:?}, ttl {:?} ms, merge operator {:?})",
        d.kind,
        d.layout,
        d.codecs.join(", "),
        d.shape.key_width,
        d.shape.namespace_width,
        d.ttl_ms,
        d.merge_operator
    )
}

fn check_descriptor(descriptor: &StateDescriptor, operator: Option<&dyn MergeOperator>) -> Result<()> {
    let name = &descriptor.name;
    if name.is_empty() || name.len() > MAX_NAME_BYTES {
        return Err(Error::invalid(format!("state name `{name}` must be 1 to {MAX_NAME_BYTES} bytes long")));
    }
    if descriptor.ttl_ms == Some(0) {
        return Err(Error::invalid(format!("state `{name}`: a TTL of 0 would expire every value at once")));
    }
    if descriptor.merge_operator.as_deref() != operator.map(MergeOperator::name) {
        return Err(Error::invalid(format!(
            "state `{name}`: described with merge operator {:?}, registered with {:?}",
            descriptor.merge_operator,
            operator.map(MergeOperator::name)
        )));
    }
    if operator.is_some() && (descriptor.ttl_ms.is_some() || descriptor.layout == Layout::Grouped) {
        return Err(Error::invalid(format!(
            "state `{name}`: a merge operator goes with single values without TTL; use get and put"
        )));
    }
    Ok(())
}
