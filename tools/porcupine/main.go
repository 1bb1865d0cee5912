// Asks Porcupine: each register of `redlock-chaos export` on the standard input, with an empty line behind it, gets a line.
package main

import (
	"bufio"
	"fmt"
	"os"
	"regexp"
	"time"

	"github.com/anishathalye/porcupine"
)

var (
	line = regexp.MustCompile(`^INFO\s+jepsen\.util - (\d+)\t:(invoke|ok)\t:(write|cas)\t\[?(\d+)(?: (\d+)\])?$`)
	// That of etcd's register, without reads.
	register = porcupine.Model{
		Init: func() interface{} { return "none" },
		Step: func(state, input, output interface{}) (bool, interface{}) {
			call := input.([]string)
			if call[3] == "write" {
				return true, call[4]
			}
			return state == call[4], call[5]
		},
	}
)

func main() {
	var events []porcupine.Event
	open := map[string]int{} // of each process, the operation that has no answer yet
	lines := bufio.NewScanner(os.Stdin)
	for number := 0; lines.Scan(); number++ {
		if lines.Text() == "" {
			fmt.Println(porcupine.CheckEventsTimeout(register, events, time.Minute))
			events, open = nil, map[string]int{}
			continue
		}
		words := line.FindStringSubmatch(lines.Text())
		if words == nil {
			fmt.Fprintf(os.Stderr, "line %d is none: %s\n", number+1, lines.Text())
			os.Exit(2)
		}
		if words[2] == "invoke" {
			open[words[1]] = number
			events = append(events, porcupine.Event{Kind: porcupine.CallEvent, Value: words, Id: number})
		} else {
			events = append(events, porcupine.Event{Kind: porcupine.ReturnEvent, Value: nil, Id: open[words[1]]})
		}
	}
}
