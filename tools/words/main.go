// Command words fails when a name in this repository uses a word of the old private
// vocabulary. It looks at declared identifiers, file names, test names and headings. It also
// fails when a text has a phrase that is not plain English.
//
//	go -C tools run ./words            # the whole repository
//	go -C tools run ./words cmd/ docs/ # only these paths
//
// See docs/design.md for the glossary.
package main

import (
	"cmp"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

func main() {
	root := flag.String("root", "..", "the directory of the repository")
	flag.Parse()
	uses, err := search(*root, flag.Args())
	if err != nil {
		fmt.Fprintln(os.Stderr, "words:", err)
		os.Exit(2)
	}
	if len(uses) > 0 {
		report(os.Stdout, uses)
		os.Exit(1)
	}
}

// search finds the uses of private words in the repository at root. Prefixes, if there
// are any, limit it to paths that begin with one of them.
func search(root string, prefixes []string) ([]use, error) {
	files, err := listFiles(root)
	if err != nil {
		return nil, err
	}
	implemented, err := driverNames(filepath.Join(root, "driver"))
	if err != nil {
		return nil, err
	}
	c := checker{root: root, implemented: implemented}
	for _, path := range files {
		if !selected(prefixes, path) {
			continue
		}
		if err := c.checkFile(path, matchesAny(exempt, path)); err != nil {
			return nil, err
		}
	}
	return c.uses, nil
}

func selected(prefixes []string, path string) bool {
	return len(prefixes) == 0 || slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(path, p) })
}

// listFiles returns the slash-separated paths of the files that git knows or would add.
func listFiles(root string) ([]string, error) {
	cmd := exec.Command("git", "ls-files", "--cached", "--others", "--exclude-standard", "--deduplicate")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("git ls-files: %w", err)
	}
	var files []string
	for path := range strings.Lines(string(out)) {
		path = strings.TrimSpace(path)
		if _, err := os.Stat(filepath.Join(root, filepath.FromSlash(path))); err == nil {
			files = append(files, path)
		}
	}
	return files, nil
}

// report prints the number of uses of each word, the most frequent first, and where
// they are.
func report(w io.Writer, uses []use) {
	byWord := map[string][]use{}
	for _, u := range uses {
		byWord[u.word] = append(byWord[u.word], u)
	}
	words := slices.SortedFunc(maps.Keys(byWord), func(a, b string) int {
		return cmp.Or(len(byWord[b])-len(byWord[a]), strings.Compare(a, b))
	})
	for _, word := range words {
		fmt.Fprintf(w, "%s: %d, write %s\n", word, len(byWord[word]), replacement(word))
		for _, u := range byWord[word] {
			fmt.Fprintf(w, "  %s: %s %s\n", u.position, u.kind, u.name)
		}
	}
	fmt.Fprintf(w, "%d uses of %d words that are not in the glossary\n", len(uses), len(words))
}
