package main

import (
	"bufio"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
)

// shares answers lines of standard input, one line each, as the Java program Shares does: a strategy, what it needs to
// know, a member, all members, and queues as topic:broker:id.
func shares() {
	input := bufio.NewScanner(os.Stdin)
	input.Buffer(make([]byte, 1<<20), 1<<24)
	output := bufio.NewWriter(os.Stdout)
	defer output.Flush()
	for input.Scan() {
		fields := strings.Split(input.Text(), "\t")
		allocate := strategy(fields[1], fields[2])
		found := allocate("G", fields[3], queuesOf(fields[5]), strings.Split(fields[4], " "))
		texts := make([]string, 0, len(found))
		for _, queue := range found {
			texts = append(texts, fmt.Sprintf("%s:%s:%d", queue.Topic, queue.BrokerName, queue.QueueId))
		}
		fmt.Fprintf(output, "=%s\n", strings.Join(texts, " "))
	}
	check(input.Err())
}

func strategy(name, extra string) consumer.AllocateStrategy {
	switch name {
	case "AVG":
		return consumer.AllocateByAveragely
	case "AVG_BY_CIRCLE":
		return consumer.AllocateByAveragelyCircle
	case "MACHINE_ROOM":
		return consumer.AllocateByMachineRoom(strings.Split(extra, " "))
	case "MACHINE_ROOM_NEARBY":
		return consumer.AllocateByMachineNearby
	case "CONSISTENT_HASH":
		nodes, err := strconv.Atoi(extra)
		check(err)
		return consumer.AllocateByConsistentHash(nodes)
	case "CONFIG":
		return consumer.AllocateByConfig(queuesOf(extra))
	}
	check(fmt.Errorf("unknown strategy %q", name))
	return nil
}

func queuesOf(text string) []*primitive.MessageQueue {
	queues := make([]*primitive.MessageQueue, 0)
	for _, item := range strings.Split(text, " ") {
		parts := strings.Split(item, ":")
		id, err := strconv.Atoi(parts[2])
		check(err)
		queues = append(queues, &primitive.MessageQueue{Topic: parts[0], BrokerName: parts[1], QueueId: id})
	}
	return queues
}
