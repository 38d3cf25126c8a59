//! Storage for shapes and lanes under small numbers that are reused.

/// Values under small numbers that are reused.
#[derive(Debug)]
pub(super) struct Slab<T> {
    slots: Vec<Option<T>>,
    free: Vec<u32>,
}

impl<T> Default for Slab<T> {
    fn default() -> Slab<T> {
        Slab {
            slots: Vec::new(),
            free: Vec::new(),
        }
    }
}

impl<T> Slab<T> {
    pub(super) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    pub(super) fn insert(&mut self, value: T) -> u32 {
        if let Some(id) = self.free.pop() {
            self.slots[id as usize] = Some(value);
            return id;
        }
        self.slots.push(Some(value));
        u32::try_from(self.slots.len() - 1).expect("fewer than 2^32 shapes wait")
    }

    pub(super) fn remove(&mut self, id: u32) -> T {
        self.free.push(id);
        self.slots[id as usize]
            .take()
            .expect("ids are handed out for values that are there")
    }

    pub(super) fn get(&self, id: u32) -> &T {
        self.slots[id as usize]
            .as_ref()
            .expect("ids are handed out for values that are there")
    }

    pub(super) fn find(&self, id: u32) -> Option<&T> {
        self.slots.get(id as usize)?.as_ref()
    }

    pub(super) fn get_mut(&mut self, id: u32) -> &mut T {
        self.slots[id as usize]
            .as_mut()
            .expect("ids are handed out for values that are there")
    }
}
