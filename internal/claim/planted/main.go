// Planted puts one bug at a time into package claim and shows whether the tests of the package,
// and then its exploration, find it: bugs of a list, and each condition, each bound and each
// statement of the package negated or left out. It exits with 1 if one is not found. There is no
// list of exceptions: a condition whose absence changes nothing does not belong there.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
)

var (
	only     = flag.String("only", "", "plant the bugs whose description matches this regular expression")
	sample   = flag.Int("sample", 0, "plant so many, chosen by -by; 0: all")
	by       = flag.String("by", "", "what chooses a sample, such as the hash of a commit")
	weight   = flag.String("weight", "15.5", "how much is explored, see the flag of the tests")
	atime    = flag.Int("p", 2, "how many bugs to try at a time")
	explores = flag.Bool("explore", false, "run the exploration alone, not the other tests of the package before it")
	verbose  = flag.Bool("v", false, "show the way to each bug")
)

func main() {
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	matching, err := regexp.Compile(*only)
	if err != nil {
		fmt.Fprintln(os.Stderr, "planted:", err)
		os.Exit(2)
	}
	p, err := newPlanter("internal/claim")
	if err != nil {
		fmt.Fprintln(os.Stderr, "planted:", err)
		os.Exit(2)
	}
	defer p.close()
	missed, err := p.plantAll(ctx, choose(p.bugs(matching), *sample, *by))
	if err != nil {
		fmt.Fprintln(os.Stderr, "planted:", err)
		p.close()
		os.Exit(2)
	}
	if missed > 0 {
		p.close()
		os.Exit(1)
	}
}
