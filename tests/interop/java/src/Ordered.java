import java.nio.charset.StandardCharsets;
import java.util.concurrent.ThreadLocalRandom;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * An orderly consumer as a command: {@code Ordered NAMESRV GROUP TOPIC}, until the end of its input.
 *
 * <p>One JSON object per handled message: its queue, its body, which is a number, and from when to when it was handled.
 */
public final class Ordered {
    private Ordered() {
    }

    public static void main(String[] args) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(args[1]);
        consumer.setNamesrvAddr(args[0]);
        consumer.setPollNameServerInterval(3_000);
        consumer.setInstanceName("ordered-" + System.nanoTime());
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setConsumeThreadMin(8);
        consumer.setConsumeThreadMax(8);
        consumer.setAwaitTerminationMillisWhenShutdown(3_000);
        consumer.subscribe(args[2], "*");
        consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
            for (MessageExt message : messages) {
                long begin = System.currentTimeMillis();
                try {
                    Thread.sleep(ThreadLocalRandom.current().nextInt(1, 8));
                } catch (InterruptedException stopped) {
                    return ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT;
                }
                emit("{\"event\": \"handled\", \"queueId\": " + message.getQueueId() + ", \"number\": "
                    + new String(message.getBody(), StandardCharsets.UTF_8) + ", \"begin\": " + begin
                    + ", \"end\": " + System.currentTimeMillis() + "}");
            }
            return ConsumeOrderlyStatus.SUCCESS;
        });
        consumer.start();
        emit("{\"event\": \"started\"}");
        while (System.in.read() >= 0) {
            continue;
        }
        consumer.shutdown();
        emit("{\"event\": \"done\"}");
        System.exit(0);
    }

    private static synchronized void emit(String line) {
        System.out.println(line);
        System.out.flush();
    }
}
