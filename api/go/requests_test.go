// SPDX-License-Identifier: BSD-2-Clause

package moonrail

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"
)

// local are the settings of an engine that copies inside this host.
var local map[string]string

func moves(m *Memory, there *target, count int) []Move {
	list := make([]Move, count)
	for i := range list {
		list[i] = Move{m.Slice(i*128, i*128+64), there.address + uint64(i)*200}
	}
	return list
}

func TestRangesOfBothSidesAreConcatenated(t *testing.T) {
	there := sharedTarget(t)
	for _, settings := range []map[string]string{local, railsOnly} {
		engine := newEngine(t, settings)
		content := pattern(3, 300000)
		memory := alloc(t, engine, content)
		peer := open(t, engine, there.name)
		at := there.address
		must(t, peer.WritePieces(background, []Piece{memory.Slice(0, 100), memory.Slice(200, 1000)},
			[]Range{{at, 500}, {at + 1000, 400}}))
		sent := content[:100] + content[200:1000]
		want(t, there.show(0, 500) == sent[:500] && there.show(1000, 400) == sent[500:], "write")
		must(t, peer.ReadPieces(background,
			[]Piece{memory.Slice(5000, 5400), memory.Slice(6000, 6500)},
			[]Range{{at + 1000, 400}, {at, 500}}))
		want(t, string(memory.Bytes()[5000:5400]) == sent[500:] &&
			string(memory.Bytes()[6000:6500]) == sent[:500], "read")
		// These are more ranges than one request may have.
		var many []Piece
		for i := 0; i < 2000; i++ {
			many = append(many, memory.Slice(i*100, i*100+50))
		}
		must(t, peer.WritePieces(background, many, []Range{{at, 100000}}))
		want(t, there.show(99950, 50) == content[199900:199950], "many ranges")
		err := peer.WritePieces(background, many, []Range{{at, 99999}})
		e := record(t, err)
		want(t, e.Code == InvalidArgument && e.Status == StatusNone, "%v", e)
		err = peer.ReadPieces(background, []Piece{{}}, []Range{{at, 1}})
		want(t, strings.Contains(record(t, err).Text, "another engine"), "%v", err)
	}
}

func TestDeadlineEndsAWriteOfPieces(t *testing.T) {
	there := startTarget(t)
	engine := newEngine(t, railsOnly)
	memory, held, peer := heldWrite(t, engine, there)
	ctx, cancel := context.WithTimeout(background, 100*time.Millisecond)
	defer cancel()
	err := peer.WritePieces(ctx, []Piece{memory.All()}, []Range{{there.address, targetSize}})
	want(t, errors.Is(err, context.DeadlineExceeded), "%v", err)
	must(t, held.Close())
}

func TestCookiesReturnWithTheResults(t *testing.T) {
	there := sharedTarget(t)
	engine := newEngine(t, local)
	memory := alloc(t, engine, pattern(1, 4096))
	peer := open(t, engine, there.name)
	at := there.address
	_, err := engine.EventFd()
	must(t, err)
	transfer, err := engine.NewBatch().Write(peer, memory.Slice(0, 10), at).
		Cookie(math.MaxUint64).Read(peer, memory.Slice(0, 20), at).
		Write(peer, memory.Slice(0, 30), at).Cookie(3).Submit(background)
	must(t, err)
	var ended []Ended
	waitUntil(t, func() bool {
		some, err := engine.EndedBatches()
		must(t, err)
		ended = append(ended, some...)
		return len(ended) == 1
	})
	want(t, ended[0] == Ended{transfer.ID(), StatusCompleted, 60, math.MaxUint64, 3}, "%v", ended)
	_, err = transfer.Wait(background)
	must(t, err)
	tasks, err := transfer.Tasks()
	must(t, err)
	want(t, fmt.Sprint(tasks) == fmt.Sprint([]Task{{math.MaxUint64, StatusCompleted, 10},
		{0, StatusCompleted, 20}, {3, StatusCompleted, 30}}), "%v", tasks)
}

func TestFirstEndedTransferIsFound(t *testing.T) {
	there := startTarget(t)
	engine := newEngine(t, railsOnly)
	memory, held, peer := heldWrite(t, engine, there)
	tasks, err := held.Tasks()
	must(t, err)
	want(t, len(tasks) == 1 && tasks[0].Status == StatusWaiting, "%v", tasks)
	ctx, cancel := context.WithTimeout(background, 20*time.Millisecond)
	defer cancel()
	_, err = engine.WaitAny(ctx, held)
	want(t, err == context.DeadlineExceeded, "%v", err)
	me := open(t, engine, engine.Name())
	ending, err := engine.NewBatch().Write(me, memory.Slice(0, 8), memory.Address()+8).
		Submit(background)
	must(t, err)
	for i := 0; i < 2; i++ {
		index, err := engine.WaitAny(background, held, ending)
		must(t, err)
		want(t, index == 1, "index %d", index)
		_, err = ending.Wait(background)
		must(t, err)
	}
	_, err = engine.WaitAny(background)
	want(t, record(t, err).Code == InvalidArgument, "%v", err)
	_, err = newEngine(t, local).WaitAny(background, held)
	want(t, strings.Contains(record(t, err).Text, "another engine"), "%v", err)
	go func() {
		_, _ = held.Wait(background)
	}()
	held.Cancel()
	index, err := engine.WaitAny(background, held)
	must(t, err)
	want(t, index == 0, "index %d", index)
	want(t, peer.Close() == nil, "close")
}

func TestEndedBatchesAreUsedAgain(t *testing.T) {
	there := sharedTarget(t)
	engine := newEngine(t, local)
	memory := alloc(t, engine, pattern(1, 4096))
	peer := open(t, engine, there.name)
	ids := map[uint64]bool{}
	for _, count := range []int{3, 4, 3, 4, 4} {
		batch := engine.NewBatch()
		for i := 0; i < count; i++ {
			batch.Write(peer, memory.Slice(i, i+1), there.address).Cookie(uint64(i))
		}
		transfer, err := batch.Submit(background)
		must(t, err)
		ids[transfer.ID()] = true
		n, err := transfer.Wait(background)
		must(t, err)
		tasks, err := transfer.Tasks()
		must(t, err)
		want(t, n == uint64(count) && len(tasks) == count &&
			tasks[count-1].Cookie == uint64(count-1), "%d bytes, %v", n, tasks)
	}
	want(t, len(ids) == 1, "%d batches", len(ids))
}

func TestPreparedPiecesAreSubmittedManyTimes(t *testing.T) {
	const count = 1000
	there := sharedTarget(t)
	for _, settings := range []map[string]string{local, railsOnly} {
		engine := newEngine(t, settings)
		content := pattern(7, count*128)
		memory := alloc(t, engine, content)
		back, err := engine.Alloc(count * 128)
		must(t, err)
		peer := open(t, engine, there.name)
		write, err := peer.PrepareWrite(moves(memory, there, count))
		must(t, err)
		read, err := peer.PrepareRead(moves(back, there, count))
		must(t, err)
		want(t, write.Len() == count, "%d pieces", write.Len())
		there.ask("fill", 0, targetSize, 0)
		wait := func(transfer *Transfer, err error) uint64 {
			t.Helper()
			must(t, err)
			want(t, !transfer.Checked() && !transfer.Restarted(), "checked")
			n, err := transfer.Wait(background)
			must(t, err)
			return n
		}
		want(t, wait(write.Submit(background, []uint32{5, 999, 5}, 0)) == 3*64, "subset")
		want(t, there.show(4*200, 64) == strings.Repeat("\x00", 64), "another piece")
		want(t, there.show(999*200, 64) == content[999*128:999*128+64], "piece 999")
		want(t, wait(write.SubmitAll(background, 0)) == count*64, "all")
		var even []uint32
		for i := uint32(0); i < count; i += 2 {
			even = append(even, i)
		}
		transfer, err := read.Submit(background, even, 8)
		want(t, wait(transfer, err) == count/2*64, "even pieces")
		tasks, err := transfer.Tasks()
		must(t, err)
		want(t, len(tasks) == 1 && tasks[0].Cookie == 8, "%v", tasks)
		got := string(back.Bytes())
		want(t, got[998*128:998*128+64] == content[998*128:998*128+64] &&
			got[128:192] == strings.Repeat("\x00", 64), "bytes of the read")
		must(t, read.Close())
		must(t, read.Close())
		_, err = read.SubmitAll(background, 0)
		want(t, err == ErrClosed, "%v", err)
		for _, indices := range [][]uint32{nil, {count}} {
			_, err = write.Submit(background, indices, 0)
			want(t, record(t, err).Code == InvalidArgument, "%v", err)
		}
		_, err = peer.PrepareWrite(nil)
		want(t, record(t, err).Code == InvalidArgument, "%v", err)
		_, err = peer.PrepareWrite([]Move{{memory.Slice(0, 8), there.address + targetSize}})
		want(t, strings.Contains(record(t, err).Text, "pieces[0]"), "%v", err)
		must(t, memory.Close())
		_, err = write.SubmitAll(background, 0)
		want(t, record(t, err).Code == 3, "%v", err)
		_, err = peer.PrepareWrite([]Move{{memory.Slice(0, 8), there.address}})
		want(t, err == ErrClosed, "%v", err)
	}
}

func TestDeadlineEndsAPreparedWrite(t *testing.T) {
	there := startTarget(t)
	engine := newEngine(t, railsOnly)
	memory := alloc(t, engine, pattern(1, targetSize))
	peer := open(t, engine, there.name)
	prepared, err := peer.PrepareWrite([]Move{{memory.All(), there.address}})
	must(t, err)
	_, err = peer.Write(background, memory.Slice(0, 8), there.address)
	must(t, err)
	there.stop()
	defer there.signal(syscall.SIGCONT)
	transfer := submitWithDeadline(t, func(ctx context.Context) (*Transfer, error) {
		return prepared.SubmitAll(ctx, 0)
	})
	_, err = transfer.Wait(background)
	want(t, errors.Is(err, context.DeadlineExceeded), "%v", err)
}

func TestBinaryNotificationsCarryAnyBytes(t *testing.T) {
	there := sharedTarget(t)
	engine := newEngine(t, local)
	peer := open(t, engine, there.name)
	must(t, peer.NotifyBytes("all", []byte{0, 255, 7, 0}))
	must(t, peer.NotifyBytes("none", nil))
	notes := ""
	waitUntil(t, func() bool {
		notes += there.ask("binary")
		return notes == "all=00ff0700;none=;"
	})
	want(t, peer.NotifyBytes("long", make([]byte, 1<<20+1)) != nil, "long")
	want(t, peer.NotifyBytes("a\x00b", nil) != nil, "zero byte")
	me := open(t, engine, engine.Name())
	for i := 0; i < 100; i++ {
		must(t, me.NotifyBytes(fmt.Sprint(i), []byte(strings.Repeat("x", i))))
	}
	got, err := engine.BinaryNotifications()
	must(t, err)
	want(t, len(got) == 100, "%d notifications", len(got))
	for i, note := range got {
		want(t, note.Name == fmt.Sprint(i) && len(note.Data) == i, "%d: %v", i, note)
	}
	got, err = engine.BinaryNotifications()
	want(t, err == nil && len(got) == 0, "%v %v", got, err)
}

func TestLabelsFindTheMemoryOfAPeer(t *testing.T) {
	there := sharedTarget(t)
	peer := open(t, newEngine(t, local), there.name)
	found, err := peer.Find("layer 1")
	must(t, err)
	want(t, len(found) == 1 && found[0].Address == there.address+4096 &&
		found[0].Length == 4096 && found[0].Label == "layer 1", "%v", found)
	all, err := peer.Find("")
	must(t, err)
	want(t, len(all) == 1 && all[0] == found[0], "%v", all)
	_, err = peer.Find("layer 2")
	want(t, record(t, err).Code == 3, "%v", err)
	_, err = peer.Find("a\x00b")
	want(t, record(t, err).Code == InvalidArgument, "%v", err)
}

// mapped returns memory that mmap has allocated and that has this content.
func mapped(t *testing.T, content string) unsafe.Pointer {
	t.Helper()
	bytes, err := syscall.Mmap(-1, 0, len(content), syscall.PROT_READ|syscall.PROT_WRITE,
		syscall.MAP_PRIVATE|syscall.MAP_ANON)
	must(t, err)
	copy(bytes, content)
	t.Cleanup(func() { _ = syscall.Munmap(bytes) })
	return unsafe.Pointer(&bytes[0])
}

func TestPartOfMemoryIsRegisteredAndClosed(t *testing.T) {
	engine := newEngine(t, local)
	me := open(t, engine, engine.Name())
	memory, err := engine.RegisterWith(mapped(t, pattern(1, 65536)), 65536,
		Registration{Label: "all"})
	must(t, err)
	part, err := memory.RegisterPart(100, 300, "part")
	must(t, err)
	want(t, part.Address() == memory.Address()+100 && part.Len() == 200, "%v", part)
	found, err := me.Find("")
	want(t, err == nil && len(found) == 2 && found[1].Label == "part", "%v %v", found, err)
	want(t, record(t, memory.Close()).Code == Busy, "close of memory with a part")
	_, err = memory.RegisterPart(0, 8, strings.Repeat("x", 256))
	want(t, record(t, err).Code == InvalidArgument, "%v", err)
	must(t, part.Close())
	must(t, memory.Close())
	_, err = memory.RegisterPart(0, 8, "late")
	want(t, err == ErrClosed, "%v", err)
	fixed, err := engine.RegisterWith(mapped(t, "12345678"), 8, Registration{ReadOnly: true})
	must(t, err)
	_, err = me.WriteBytes(background, []byte("x"), fixed.Address())
	want(t, record(t, err).Code != 0, "%v", err)
	hidden, err := engine.RegisterWith(mapped(t, "12345678"), 8, Registration{Private: true})
	must(t, err)
	buffers, err := me.Buffers()
	must(t, err)
	for _, one := range buffers {
		want(t, one.Address != hidden.Address(), "%v", one)
	}
}

func TestUnregisteredMemoryIsMoved(t *testing.T) {
	there := sharedTarget(t)
	for _, settings := range []map[string]string{local, railsOnly} {
		engine := newEngine(t, settings)
		must(t, engine.WarmUp(there.name))
		must(t, engine.Sync())
		peer := open(t, engine, there.name)
		content := pattern(5, 200000)
		from, err := engine.Unregistered(mapped(t, content), len(content))
		must(t, err)
		to, err := engine.Unregistered(mapped(t, pattern(0, 200000)), 200000)
		must(t, err)
		n, err := peer.Write(background, from.All(), there.address)
		want(t, err == nil && n == 200000, "%d %v", n, err)
		want(t, there.show(1000, 50) == content[1000:1050], "bytes of the write")
		must(t, peer.ReadPieces(background, []Piece{to.Slice(0, 100), to.Slice(200, 300)},
			[]Range{{there.address, 200}}))
		want(t, string(to.Bytes()[200:300]) == content[100:200], "bytes of the read")
		must(t, peer.WritePieces(background, []Piece{to.Slice(0, 4)}, []Range{{there.address, 4}}))
		n, err = engine.NewBatch().Read(peer, to.All(), there.address).
			Write(peer, from.All(), there.address).Run(background)
		want(t, err == nil && n == 400000, "%d %v", n, err)
		_, err = engine.NewBatch().Write(peer, from.All(), there.address).
			SubmitAndNotify(background, "a", "b")
		want(t, strings.Contains(record(t, err).Text, "registered piece"), "%v", err)
		_, err = peer.PrepareWrite([]Move{{from.All(), there.address}})
		want(t, record(t, err).Code == 3, "%v", err)
		must(t, from.Close())
		_, err = peer.Write(background, from.All(), there.address)
		want(t, err == ErrClosed, "%v", err)
		bytes := make([]byte, 8)
		_, err = engine.Unregistered(unsafe.Pointer(&bytes[0]), 8)
		want(t, strings.Contains(record(t, err).Text, "memory of Go"), "%v", err)
		want(t, engine.WarmUp("no colon") != nil, "warm-up")
	}
}
