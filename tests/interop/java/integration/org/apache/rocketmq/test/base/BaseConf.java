package org.apache.rocketmq.test.base;

import java.util.ArrayList;
import java.util.List;
import java.util.UUID;
import java.util.concurrent.CopyOnWriteArrayList;
import org.apache.rocketmq.broker.BrokerController;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.namesrv.NamesrvController;
import org.apache.rocketmq.test.client.rmq.RMQAsyncSendProducer;
import org.apache.rocketmq.test.client.rmq.RMQNormalConsumer;
import org.apache.rocketmq.test.client.rmq.RMQNormalProducer;
import org.apache.rocketmq.test.client.rmq.RMQTransactionalProducer;
import org.apache.rocketmq.test.clientinterface.AbstractMQConsumer;
import org.apache.rocketmq.test.clientinterface.AbstractMQProducer;
import org.apache.rocketmq.test.factory.ConsumerFactory;
import org.apache.rocketmq.test.listener.AbstractListener;
import org.apache.rocketmq.test.util.MQAdmin;

/**
 * Stands in for the class of this name that RocketMQ's integration tests extend. That one starts Apache's servers within
 * the JVM; this one names servers that run already: {@code -Dservers=namesrv,cluster,brokerA,brokerB}.
 */
public class BaseConf {
    private static final String[] SERVERS = System.getProperty("servers").split(",");

    public static String nsAddr = SERVERS[0];
    protected static String clusterName = SERVERS[1];
    protected static String broker1Name = SERVERS[2];
    protected static String broker2Name = SERVERS[3];
    protected static int brokerNum = 2;
    protected static int waitTime = 5;
    protected static int consumeTime = 120_000;
    protected static NamesrvController namesrvController;
    protected static BrokerController brokerController1;
    protected static BrokerController brokerController2;
    protected static List<Object> mqClients = new CopyOnWriteArrayList<>();
    protected static boolean debug;

    private static <T> T kept(T client) {
        mqClients.add(client);
        return client;
    }

    public static String initTopic() {
        return initTopicWithName("topic-" + UUID.randomUUID());
    }

    public static String initTopicWithName(String topic) {
        IntegrationTestBase.initTopic(topic, nsAddr, clusterName);
        return topic;
    }

    public static String initConsumerGroup() {
        return initConsumerGroup("group-" + UUID.randomUUID());
    }

    public static String initConsumerGroup(String group) {
        MQAdmin.createSub(nsAddr, clusterName, group);
        return group;
    }

    public static RMQNormalProducer getProducer(String nameServer, String topic) {
        return getProducer(nameServer, topic, false);
    }

    public static RMQNormalProducer getProducer(String nameServer, String topic, boolean useTLS) {
        return kept(new RMQNormalProducer(nameServer, topic, useTLS));
    }

    public static RMQNormalProducer getProducer(String nameServer, String topic, String group, String instance) {
        return kept(new RMQNormalProducer(nameServer, topic, group, instance));
    }

    public static RMQTransactionalProducer getTransactionalProducer(
            String nameServer, String topic, TransactionListener listener) {
        return kept(new RMQTransactionalProducer(nameServer, topic, false, listener));
    }

    public static RMQAsyncSendProducer getAsyncProducer(String nameServer, String topic) {
        return kept(new RMQAsyncSendProducer(nameServer, topic));
    }

    public static RMQNormalConsumer getConsumer(
            String nameServer, String topic, String expression, AbstractListener listener) {
        return getConsumer(nameServer, topic, expression, listener, false);
    }

    public static RMQNormalConsumer getConsumer(
            String nameServer, String topic, String expression, AbstractListener listener, boolean useTLS) {
        return getConsumer(nameServer, initConsumerGroup(), topic, expression, listener, useTLS);
    }

    public static RMQNormalConsumer getConsumer(
            String nameServer, String group, String topic, String expression, AbstractListener listener) {
        return getConsumer(nameServer, group, topic, expression, listener, false);
    }

    public static RMQNormalConsumer getConsumer(
            String nameServer,
            String group,
            String topic,
            String expression,
            AbstractListener listener,
            boolean useTLS) {
        return kept(ConsumerFactory.getRMQNormalConsumer(nameServer, group, topic, expression, listener, useTLS));
    }

    public static void shutdown() {
        List<Object> clients = new ArrayList<>(mqClients);
        mqClients.clear();
        for (Object client : clients) {
            if (client instanceof AbstractMQProducer) {
                ((AbstractMQProducer) client).shutdown();
            } else if (client instanceof AbstractMQConsumer) {
                ((AbstractMQConsumer) client).shutdown();
            }
        }
    }
}
