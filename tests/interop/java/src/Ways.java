import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.Comparator;
import java.util.List;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.client.ClientConfig;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.selector.SelectMessageQueueByHash;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * Ways to send and to consume beyond those of {@link Main}, as a command.
 *
 * <pre>
 * send NAMESRV TOPIC GROUP WAY COUNT PARAMETER   ways: delay (its level), ordered (number of keys), plain, traced
 * take NAMESRV ROLE GROUP TOPIC MEMBERS          roles: plain, traced, orderly, broadcasting, batch, again; until end of input
 * pull NAMESRV GROUP TOPIC                       waits for messages at the end of queue 0, until end of input
 * lite NAMESRV GROUP TOPIC                       reads a queue twice, commits; then shares queues until end of input
 * </pre>
 *
 * The environment says what holds for all of them: STRANGER_NAMESPACE, STRANGER_VIP (true: by the fast port),
 * STRANGER_FROM (the time at which new groups begin), STRANGER_TAGS (what is subscribed).
 */
public final class Ways {
    private static volatile boolean over;

    private Ways() {
    }

    public static void main(String[] args) throws Exception {
        String[] rest = Arrays.copyOfRange(args, 2, args.length);
        switch (args[0]) {
            case "send":
                send(args[1], rest[0], rest[1], rest[2], Integer.parseInt(rest[3]), Integer.parseInt(rest[4]));
                break;
            case "take":
                take(args[1], rest[0], rest[1], rest[2], Integer.parseInt(rest[3]));
                break;
            case "pull":
                pull(args[1], rest[0], rest[1]);
                break;
            case "lite":
                lite(args[1], rest[0], rest[1]);
                break;
            default:
                throw new IllegalArgumentException(args[0]);
        }
        emit("{\"event\": \"done\"}");
        System.exit(0);
    }

    private static void send(String namesrv, String topic, String group, String way, int count, int parameter)
        throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer(group, way.equals("traced"), null);
        producer.setNamesrvAddr(namesrv);
        configure(producer);
        producer.setSendMsgTimeout(20_000);
        producer.start();
        for (int i = 0; i < count; i++) {
            Message message = new Message(topic, "tag" + i % 4, "key-" + i, ("body " + i).getBytes(StandardCharsets.UTF_8));
            message.putUserProperty("index", Integer.toString(i));
            SendResult result;
            if (way.equals("ordered")) {
                result = producer.send(message, new SelectMessageQueueByHash(), "order-" + i % parameter);
            } else {
                if (way.equals("delay")) {
                    message.setDelayTimeLevel(parameter);
                }
                result = producer.send(message);
            }
            emit("{\"event\": \"sent\", \"i\": " + i + ", \"status\": \"" + result.getSendStatus()
                + "\", \"msgId\": \"" + result.getMsgId()
                + "\", \"queueId\": " + result.getMessageQueue().getQueueId() + "}");
        }
        if (way.equals("traced")) {
            // The client of 5.3.3 leaves unsent what it has not sent after five seconds by itself; the test knows when.
            while (System.in.read() >= 0) {
                // Whatever comes, the end is what matters.
            }
        }
        producer.shutdown();
    }

    private static void take(String namesrv, String role, String group, String topic, int members) throws Exception {
        List<DefaultMQPushConsumer> consumers = new ArrayList<>();
        for (int n = 0; n < members; n++) {
            DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group, role.equals("traced"), null);
            String name = role + "-" + n;
            consumer.setNamesrvAddr(namesrv);
            consumer.setPollNameServerInterval(3_000);
            consumer.setInstanceName(name + "-" + group);
            consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
            if (System.getenv("STRANGER_FROM") != null) {
                consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_TIMESTAMP);
                consumer.setConsumeTimestamp(System.getenv("STRANGER_FROM"));
            }
            consumer.setConsumeThreadMin(4);
            consumer.setConsumeThreadMax(4);
            configure(consumer);
            consumer.subscribe(topic, System.getenv().getOrDefault("STRANGER_TAGS", "*"));
            if (role.equals("broadcasting")) {
                setBroadcasting(consumer);
            }
            if (role.equals("batch")) {
                consumer.setConsumeMessageBatchMaxSize(8);
            }
            if (role.equals("orderly")) {
                consumer.setSuspendCurrentQueueTimeMillis(100);
                consumer.registerMessageListener(orderly(name));
            } else {
                consumer.registerMessageListener(concurrently(name, role));
            }
            consumer.start();
            consumers.add(consumer);
        }
        untilTheEnd();
        for (DefaultMQPushConsumer consumer : consumers) {
            consumer.shutdown();
        }
    }

    private static void configure(ClientConfig config) {
        String namespace = System.getenv("STRANGER_NAMESPACE");
        if (namespace != null) {
            config.setNamespace(namespace);
        }
        config.setVipChannelEnabled("true".equals(System.getenv("STRANGER_VIP")));
        config.setMqClientApiTimeout(20_000);
    }

    /** Handles messages; what has a number that is 7 modulo 50 is handled at second sight. */
    private static MessageListenerOrderly orderly(String name) {
        Set<Integer> seen = ConcurrentHashMap.newKeySet();
        return (messages, context) -> {
            for (MessageExt message : messages) {
                int i = index(message);
                boolean fail = i % 50 == 7 && seen.add(i);
                received(name, message, messages.size(), fail);
                if (fail) {
                    return ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT;
                }
            }
            return ConsumeOrderlyStatus.SUCCESS;
        };
    }

    /**
     * Handles messages; the role batch refuses all behind the third of its first long batch, the role again refuses at
     * first sight what has a number that is 7 modulo 10.
     */
    private static MessageListenerConcurrently concurrently(String name, String role) {
        Set<String> done = ConcurrentHashMap.newKeySet();
        return (messages, context) -> {
            boolean part = role.equals("batch") && messages.size() > 3 && messages.get(0).getReconsumeTimes() == 0
                && done.add("part");
            for (int n = 0; n < messages.size(); n++) {
                MessageExt message = messages.get(n);
                boolean refused = role.equals("again") && index(message) % 10 == 7 && message.getReconsumeTimes() == 0;
                received(name, message, messages.size(), refused || part && n > 2);
                if (refused) {
                    context.setDelayLevelWhenNextConsume(1);
                    return ConsumeConcurrentlyStatus.RECONSUME_LATER;
                }
            }
            context.setDelayLevelWhenNextConsume(1);
            if (part) {
                context.setAckIndex(2);
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        };
    }

    /** The enumeration moved to another package between the two versions. */
    @SuppressWarnings({"unchecked", "rawtypes"})
    private static void setBroadcasting(DefaultMQPushConsumer consumer) throws Exception {
        for (Method method : DefaultMQPushConsumer.class.getMethods()) {
            if (method.getName().equals("setMessageModel")) {
                Class type = method.getParameterTypes()[0];
                method.invoke(consumer, Enum.valueOf(type, "BROADCASTING"));
            }
        }
    }

    private static void pull(String namesrv, String group, String topic) throws Exception {
        DefaultMQPullConsumer puller = new DefaultMQPullConsumer(group);
        puller.setNamesrvAddr(namesrv);
        configure(puller);
        puller.start();
        List<MessageQueue> queues = new ArrayList<>(puller.fetchSubscribeMessageQueues(topic));
        Collections.sort(queues, Comparator.comparing(MessageQueue::getQueueId));
        MessageQueue queue = queues.get(0);
        Thread pulling = new Thread(() -> {
            try {
                long offset = puller.maxOffset(queue);
                emit("{\"event\": \"waiting\"}");
                while (!over) {
                    PullResult result = puller.pullBlockIfNotFound(queue, "*", offset, 32);
                    offset = result.getNextBeginOffset();
                    if (result.getPullStatus() == PullStatus.FOUND) {
                        for (MessageExt message : result.getMsgFoundList()) {
                            received("pull", message, 1, false);
                        }
                    }
                }
            } catch (Exception error) {
                emit("{\"event\": \"error\", \"error\": \"" + ("" + error).replaceAll("[^ -!#-\\[\\]-~]", " ") + "\"}");
            }
        });
        pulling.setDaemon(true);
        pulling.start();
        untilTheEnd();
        puller.shutdown();
    }

    private static void lite(String namesrv, String group, String topic) throws Exception {
        DefaultLitePullConsumer assigned = new DefaultLitePullConsumer(group);
        assigned.setNamesrvAddr(namesrv);
        configure(assigned);
        assigned.setInstanceName("assigned-" + group);
        assigned.setAutoCommit(false);
        assigned.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        assigned.start();
        List<MessageQueue> queues = new ArrayList<>(assigned.fetchMessageQueues(topic));
        Collections.sort(queues, Comparator.comparing(MessageQueue::getQueueId));
        MessageQueue queue = queues.get(0);
        assigned.assign(Collections.singletonList(queue));
        for (String round : new String[] {"first", "again"}) {
            if (round.equals("again")) {
                // Messages that are under way when it seeks would come twice.
                assigned.seekToBegin(queue);
            }
            int empty = 0;
            while (empty < 4) {
                List<MessageExt> messages = assigned.poll(500);
                empty = messages.isEmpty() ? empty + 1 : 0;
                for (MessageExt message : messages) {
                    received(round, message, messages.size(), false);
                }
            }
        }
        assigned.commitSync();
        emit("{\"event\": \"committed\", \"offset\": " + assigned.committed(queue) + "}");
        assigned.shutdown();
        DefaultLitePullConsumer sharing = new DefaultLitePullConsumer(group);
        sharing.setNamesrvAddr(namesrv);
        configure(sharing);
        sharing.setInstanceName("sharing-" + group);
        sharing.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        sharing.subscribe(topic, "*");
        sharing.start();
        Thread polling = new Thread(() -> {
            while (!over) {
                for (MessageExt message : sharing.poll(200)) {
                    received("shared", message, 1, false);
                }
            }
        });
        polling.start();
        untilTheEnd();
        polling.join();
        sharing.shutdown();
    }

    private static void untilTheEnd() throws Exception {
        emit("{\"event\": \"started\"}");
        while (System.in.read() >= 0) {
            continue;
        }
        over = true;
    }

    private static int index(MessageExt message) {
        String index = message.getUserProperty("index");
        return index == null ? -1 : Integer.parseInt(index);
    }

    private static void received(String name, MessageExt message, int together, boolean failed) {
        emit("{\"event\": \"received\", \"consumer\": \"" + name + "\", \"i\": " + index(message)
            + ", \"topic\": \"" + message.getTopic() + "\", \"tags\": \"" + message.getTags() + "\""
            + ", \"queueId\": " + message.getQueueId() + ", \"queueOffset\": " + message.getQueueOffset()
            + ", \"reconsumeTimes\": " + message.getReconsumeTimes() + ", \"together\": " + together
            + ", \"bornTimestamp\": " + message.getBornTimestamp()
            + ", \"storeTimestamp\": " + message.getStoreTimestamp()
            + ", \"at\": " + System.currentTimeMillis() + ", \"failed\": " + failed + "}");
    }

    private static synchronized void emit(String line) {
        System.out.println(line);
        System.out.flush();
    }
}
