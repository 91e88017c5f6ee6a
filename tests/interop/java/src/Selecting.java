import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * Consumers with SQL92 expressions, at the same time: {@code Selecting NAMESRV (MODE GROUP TOPIC EXPRESSION)+}.
 *
 * <p>Each line says which group it is of. Modes: push and lite read until the end of input, retry does and refuses each message once, pull reads all there is.
 */
public final class Selecting {
    private static volatile boolean over;

    private Selecting() {
    }

    public static void main(String[] args) throws Exception {
        Thread input = new Thread(() -> {
            try {
                while (System.in.read() >= 0) {
                    continue;
                }
            } catch (java.io.IOException ended) {
                // The same as the end of input.
            }
            over = true;
        });
        input.setDaemon(true);
        input.start();
        Thread[] consumers = new Thread[(args.length - 1) / 4];
        for (int n = 0; n < consumers.length; n++) {
            String[] wish = Arrays.copyOfRange(args, 1 + 4 * n, 5 + 4 * n);
            consumers[n] = new Thread(() -> consume(args[0], wish[0], wish[1], wish[2], MessageSelector.bySql(wish[3])));
            consumers[n].start();
        }
        for (Thread consumer : consumers) {
            consumer.join();
        }
        emit("done", "", "");
        System.exit(0);
    }

    private static void consume(String namesrv, String mode, String group, String topic, MessageSelector selector) {
        try {
            switch (mode) {
                case "lite":
                    lite(namesrv, group, topic, selector);
                    break;
                case "pull":
                    pull(namesrv, group, topic, selector);
                    break;
                default:
                    push(namesrv, mode.equals("retry"), group, topic, selector);
            }
        } catch (MQClientException refused) {
            emit("refused", group, ", \"code\": " + refused.getResponseCode() + ", \"error\": \""
                + ("" + refused.getErrorMessage()).replaceAll("[\"\\\\\\x00-\\x1f]", " ") + "\"");
        } catch (Exception error) {
            error.printStackTrace();
        }
    }

    private static void push(String namesrv, boolean refuse, String group, String topic, MessageSelector selector)
        throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group);
        consumer.setNamesrvAddr(namesrv);
        consumer.setInstanceName("selecting-" + System.nanoTime());
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setAwaitTerminationMillisWhenShutdown(3_000);
        consumer.subscribe(topic, selector);
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            context.setDelayLevelWhenNextConsume(1);
            for (MessageExt message : messages) {
                received(group, message);
                if (refuse && message.getReconsumeTimes() == 0) {
                    return ConsumeConcurrentlyStatus.RECONSUME_LATER;
                }
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        emit("started", group, "");
        while (!over) {
            Thread.sleep(20);
        }
        consumer.shutdown();
    }

    private static void lite(String namesrv, String group, String topic, MessageSelector selector) throws Exception {
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer(group);
        consumer.setNamesrvAddr(namesrv);
        consumer.setInstanceName("selecting-" + System.nanoTime());
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, selector);
        consumer.start();
        emit("started", group, "");
        while (!over) {
            consumer.poll(100).forEach(message -> received(group, message));
        }
        consumer.shutdown();
    }

    private static void pull(String namesrv, String group, String topic, MessageSelector selector) throws Exception {
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer(group);
        consumer.setNamesrvAddr(namesrv);
        // At the first heartbeat it knows no broker, and it is told at the next one that the broker knows SQL.
        consumer.setHeartbeatBrokerInterval(1_000);
        consumer.setInstanceName("selecting-" + System.nanoTime());
        consumer.start();
        emit("started", group, "");
        for (MessageQueue queue : consumer.fetchSubscribeMessageQueues(topic)) {
            long offset = consumer.minOffset(queue);
            while (offset < consumer.maxOffset(queue)) {
                PullResult result = pull(consumer, queue, selector, offset);
                List<MessageExt> found = result.getPullStatus() == PullStatus.FOUND
                    ? result.getMsgFoundList() : Collections.emptyList();
                found.forEach(message -> received(group, message));
                offset = result.getNextBeginOffset();
            }
        }
        consumer.shutdown();
    }

    // The client learns from the answer to a heartbeat that the broker knows SQL, and does not wait for it.
    private static PullResult pull(
        DefaultMQPullConsumer consumer, MessageQueue queue, MessageSelector selector, long offset) throws Exception {
        for (int attempt = 0;; attempt++) {
            try {
                return consumer.pull(queue, selector, offset, 32);
            } catch (MQClientException early) {
                if (attempt > 200 || !("" + early.getErrorMessage()).contains("does not upgrade")) {
                    throw early;
                }
                Thread.sleep(200);
            }
        }
    }

    private static void received(String group, MessageExt message) {
        emit("received", group, ", \"i\": " + message.getUserProperty("index") + ", \"reconsumeTimes\": "
            + message.getReconsumeTimes() + ", \"topic\": \"" + message.getTopic() + "\"");
    }

    private static void emit(String event, String group, String more) {
        byte[] bytes = ("{\"event\": \"" + event + "\", \"group\": \"" + group + "\"" + more + "}\n").getBytes(StandardCharsets.UTF_8);
        synchronized (Selecting.class) {
            System.out.write(bytes, 0, bytes.length);
            System.out.flush();
        }
    }
}
