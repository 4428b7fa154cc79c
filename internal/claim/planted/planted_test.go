package main

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"
)

// sampleSize is how many planted bugs a run of the tests tries.
const sampleSize = 12

func TestASampleOfPlantedBugsIsFound(t *testing.T) {
	p, err := newPlanter("..")
	if err != nil {
		t.Fatal(err)
	}
	defer p.close()
	missed, err := p.plantAll(t.Context(), choose(p.bugs(regexp.MustCompile("")), sampleSize, commit()))
	if err != nil {
		t.Fatal(err)
	}
	if missed > 0 {
		t.Errorf("%d planted bugs were not found", missed)
	}
}

// commit chooses the sample: the commit that is tested, or the day.
func commit() string {
	if hash := os.Getenv("SQLLOCK_SAMPLE"); hash != "" {
		return hash
	}
	out, err := exec.Command("git", "rev-parse", "HEAD").Output()
	if err != nil {
		return time.Now().Format(time.DateOnly)
	}
	return strings.TrimSpace(string(out))
}
