import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Collections;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;

import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyContext;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.MessageQueueSelector;
import org.apache.rocketmq.client.producer.RequestCallback;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * Requests and replies with Apache's client: {@code ask NAMESRV TOPIC COUNT} or {@code answer NAMESRV TOPIC GROUP}.
 *
 * <p>Asking prints a line for each reply: its body, topic and born host. Answering goes on until the input ends.
 */
public final class Replies {
    private Replies() {
    }

    public static void main(String[] args) throws Exception {
        PrintStream out = new PrintStream(System.out, true, "UTF-8");
        if ("ask".equals(args[0])) {
            ask(args[1], args[2], Integer.parseInt(args[3]), out);
        } else {
            answer(args[1], args[2], args[3], out);
        }
        System.exit(0);
    }

    private static void ask(String namesrv, String topic, int count, PrintStream out) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("asker" + System.nanoTime());
        producer.setNamesrvAddr(namesrv);
        producer.start();
        final CountDownLatch left = new CountDownLatch(count);
        // Of 5.3.3's ways to ask, only this one waits for the reply.
        MessageQueueSelector any = (queues, message, index) -> (MessageQueue) queues.get((Integer) index % queues.size());
        for (int i = 0; i < count; i++) {
            byte[] body = ("question " + i).getBytes(StandardCharsets.UTF_8);
            producer.request(new Message(topic, body), any, i, new RequestCallback() {
                @Override
                public void onSuccess(Message reply) {
                    MessageExt found = (MessageExt) reply;
                    out.println("reply " + new String(found.getBody(), StandardCharsets.UTF_8) + "|" + found.getTopic()
                        + "|" + found.getBornHostString());
                    left.countDown();
                }

                @Override
                public void onException(Throwable error) {
                    out.println("error " + error);
                    left.countDown();
                }
            }, 20000);
        }
        left.await(60, TimeUnit.SECONDS);
        producer.shutdown();
    }

    private static void answer(String namesrv, String topic, String group, PrintStream out) throws Exception {
        final DefaultMQProducer producer = new DefaultMQProducer("answerer" + System.nanoTime());
        producer.setNamesrvAddr(namesrv);
        producer.start();
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group);
        consumer.setNamesrvAddr(namesrv);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                try {
                    byte[] body = ("re: " + new String(message.getBody(), StandardCharsets.UTF_8))
                        .getBytes(StandardCharsets.UTF_8);
                    producer.send(MessageUtil.createReplyMessage(message, body), 5000);
                } catch (Exception error) {
                    out.println("error " + error);
                }
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        out.println("ready");
        while (System.in.read() >= 0) {
            Collections.emptyList();
        }
        consumer.shutdown();
        producer.shutdown();
    }
}
