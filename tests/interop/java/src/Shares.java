import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashSet;
import java.util.List;
import org.apache.rocketmq.client.consumer.AllocateMessageQueueStrategy;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMachineRoomNearby;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragelyByCircle;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueByConfig;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueByMachineRoom;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueConsistentHash;
import org.apache.rocketmq.client.consumer.store.OffsetSerializeWrapper;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * What Apache's client decides, one answer per line of standard input; fields are separated by tabs, items by spaces.
 *
 * <pre>
 * share STRATEGY EXTRA CID CIDS QUEUES     queues as topic:broker:id; answers with queues
 * offsets JSON                             answers with the same table as Apache writes it, line ends as \n
 * </pre>
 *
 * EXTRA is the inner strategy, the rooms, the number of virtual nodes or the configured queues. The machine room of a
 * broker or client is what comes before its first `-`.
 */
public final class Shares {
    private Shares() {
    }

    public static void main(String[] args) throws Exception {
        PrintStream out = new PrintStream(System.out, false, "UTF-8");
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] fields = line.split("\t", -1);
            String answer;
            try {
                answer = fields[0].equals("share") ? share(fields) : offsets(fields[1]);
            } catch (RuntimeException error) {
                answer = "error " + error.toString().replace('\n', ' ');
            }
            out.println(answer);
        }
        out.flush();
        System.exit(0);
    }

    private static String share(String[] fields) {
        List<String> members = new ArrayList<>(Arrays.asList(fields[4].split(" ")));
        List<MessageQueue> queues = queues(fields[5]);
        Collections.sort(members);
        Collections.sort(queues);
        StringBuilder answer = new StringBuilder("=");
        for (MessageQueue queue : strategy(fields[1], fields[2]).allocate("G", fields[3], queues, members)) {
            answer.append(answer.length() > 1 ? " " : "").append(queue.getTopic()).append(':')
                .append(queue.getBrokerName()).append(':').append(queue.getQueueId());
        }
        return answer.toString();
    }

    private static List<MessageQueue> queues(String text) {
        List<MessageQueue> queues = new ArrayList<>();
        for (String item : text.split(" ")) {
            String[] parts = item.split(":");
            queues.add(new MessageQueue(parts[0], parts[1], Integer.parseInt(parts[2])));
        }
        return queues;
    }

    private static AllocateMessageQueueStrategy strategy(String name, String extra) {
        switch (name) {
            case "AVG":
                return new AllocateMessageQueueAveragely();
            case "AVG_BY_CIRCLE":
                return new AllocateMessageQueueAveragelyByCircle();
            case "CONSISTENT_HASH":
                return new AllocateMessageQueueConsistentHash(Integer.parseInt(extra));
            case "MACHINE_ROOM":
                AllocateMessageQueueByMachineRoom byRoom = new AllocateMessageQueueByMachineRoom();
                byRoom.setConsumeridcs(new HashSet<>(Arrays.asList(extra.split(" "))));
                return byRoom;
            case "MACHINE_ROOM_NEARBY":
                return new AllocateMachineRoomNearby(strategy(extra, "10"),
                    new AllocateMachineRoomNearby.MachineRoomResolver() {
                        @Override
                        public String brokerDeployIn(MessageQueue queue) {
                            return queue.getBrokerName().split("-")[0];
                        }

                        @Override
                        public String consumerDeployIn(String clientId) {
                            return clientId.split("-")[0];
                        }
                    });
            case "CONFIG":
                AllocateMessageQueueByConfig byConfig = new AllocateMessageQueueByConfig();
                byConfig.setMessageQueueList(queues(extra));
                return byConfig;
            default:
                throw new IllegalArgumentException(name);
        }
    }

    private static String offsets(String json) {
        OffsetSerializeWrapper table = OffsetSerializeWrapper.fromJson(json, OffsetSerializeWrapper.class);
        return table.toJson(true).replace("\r", "").replace("\n", "\\n");
    }
}
