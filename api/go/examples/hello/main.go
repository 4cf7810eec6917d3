// SPDX-License-Identifier: BSD-2-Clause

// The first process prints the name of its segment and waits. The second process is started
// with that name and writes into the memory of the first, within ten seconds.
//
//	go run ./examples/hello                      # prints, say, 127.0.0.1:15023
//	go run ./examples/hello 127.0.0.1:15023      # then press return in the first
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"time"

	"moonrail"
)

func target(engine *moonrail.Engine) error {
	memory, err := engine.Alloc(4096)
	if err != nil {
		return err
	}
	fmt.Println(engine.Name())
	fmt.Scanln()
	fmt.Printf("%s\n", memory.Bytes()[:14])
	return nil
}

func initiator(engine *moonrail.Engine, name string) error {
	peer, err := engine.Open(name)
	if err != nil {
		return err
	}
	defer peer.Close()
	buffers, err := peer.Buffers()
	if err != nil {
		return err
	}
	memory, err := engine.Alloc(4096)
	if err != nil {
		return err
	}
	defer memory.Close()
	copy(memory.Bytes(), "hello from Go!")
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	n, err := peer.Write(ctx, memory.Slice(0, 14), buffers[0].Address)
	if err == nil {
		fmt.Println(n, "bytes written")
	}
	return err
}

func main() {
	engine, err := moonrail.New(moonrail.Options{Name: "127.0.0.1"})
	if err != nil {
		log.Fatal(err)
	}
	defer engine.Close()
	if len(os.Args) == 1 {
		err = target(engine)
	} else {
		err = initiator(engine, os.Args[1])
	}
	if err != nil {
		log.Print(err)
	}
}
