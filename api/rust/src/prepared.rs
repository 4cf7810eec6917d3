// SPDX-License-Identifier: BSD-2-Clause
use std::ptr;
use std::sync::Arc;
use std::time::Duration;

use crate::error::{check, Error, Result};
use crate::ffi;
use crate::memory::Piece;
use crate::segment::Segment;
use crate::transfer::{BatchId, Transfer};

/// A list of reads or writes of one segment that is checked once and submitted many times.
/// [`Segment::prepare_read`] and [`Segment::prepare_write`] make it.
///
/// `Prepared` is `Send` and `Sync`: several threads may submit its pieces at the same time.
/// It holds the local memory. It stays valid when the target's process is restarted: the
/// next submission then checks the pieces again.
pub struct Prepared {
    segment: Segment,
    pieces: Arc<Vec<Piece>>,
    list: ffi::te_prepared_t,
}

impl Prepared {
    pub(crate) fn new(
        segment: &Segment,
        opcode: u32,
        pieces: Vec<(Piece, u64)>,
    ) -> Result<Prepared> {
        let rows: Vec<ffi::te_piece> = pieces
            .iter()
            .map(|(local, remote)| {
                let local = local.to_c();
                ffi::te_piece { local: local.addr, remote: *remote, length: local.length }
            })
            .collect();
        let pieces: Vec<Piece> = pieces.into_iter().map(|(local, _)| local).collect();
        if let Some(i) =
            pieces.iter().position(|one| !Arc::ptr_eq(one.engine(), segment.engine()))
        {
            return Err(Error::new(
                Error::INVALID_ARGUMENT,
                format!("piece {i}: the memory is of another engine"),
            ));
        }
        let mut list = 0;
        // SAFETY: the array has that many elements; the library copies it.
        check(unsafe {
            ffi::te_prepare(
                segment.engine().0,
                segment.id(),
                opcode,
                rows.as_ptr(),
                rows.len(),
                0,
                &mut list,
            )
        })?;
        Ok(Prepared { segment: segment.clone(), pieces: Arc::new(pieces), list })
    }

    /// Returns the number of pieces.
    pub fn len(&self) -> usize {
        self.pieces.len()
    }

    /// Returns false, because a list without pieces cannot be prepared.
    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Submits the pieces with these numbers as one request. A number may occur several
    /// times.
    pub fn submit(&self, indices: &[u32]) -> Result<Transfer> {
        self.submit_with(Some(indices), 0, None)
    }

    /// Submits all pieces as one request.
    pub fn submit_all(&self) -> Result<Transfer> {
        self.submit_with(None, 0, None)
    }

    /// Submits the pieces with these numbers, or all pieces if `indices` is `None`. Sets a
    /// cookie, which [`Transfer::tasks`] returns, and a time limit, after which the request
    /// fails.
    pub fn submit_with(
        &self,
        indices: Option<&[u32]>,
        cookie: u64,
        limit: Option<Duration>,
    ) -> Result<Transfer> {
        if indices.map_or(false, <[u32]>::is_empty) {
            return Err(Error::new(Error::INVALID_ARGUMENT, "there is no index"));
        }
        let (start, count) =
            indices.map_or((ptr::null(), 0), |some| (some.as_ptr(), some.len()));
        let batch = BatchId::allocate(self.segment.engine(), 1)?;
        if let Some(limit) = limit {
            batch.limit(limit)?;
        }
        let mut checked = 0;
        // SAFETY: the array has count elements. The transfer holds the local memory until
        // its end.
        check(unsafe {
            ffi::te_submit_prepared(
                batch.engine.0,
                batch.id,
                self.list,
                start,
                count,
                cookie,
                0,
                &mut checked,
            )
        })?;
        Ok(Transfer::new(batch, 1, self.pieces.clone()).with_checks(checked))
    }
}

impl Drop for Prepared {
    fn drop(&mut self) {
        // SAFETY: this object owns the list.
        unsafe { ffi::te_prepared_release(self.segment.engine().0, self.list) };
    }
}
