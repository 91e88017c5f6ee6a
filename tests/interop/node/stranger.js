'use strict';

/*
 * The Node client as a command: one JSON object per line on standard output.
 *
 *   produce NAMESRV TOPIC GROUP FIRST MODE:COUNT...   mode: promise
 *   consume NAMESRV ROLE:GROUP:TOPIC[,TOPIC]...       role: clustering; until end of input
 *   send NAMESRV TOPIC GROUP WAY COUNT PARAMETER      ways: delay (its level), plain
 *   take NAMESRV ROLE GROUP TOPIC MEMBERS             roles: plain, broadcasting, again, dead; until end of input
 *
 * The environment says what holds for all of them: STRANGER_NAMESPACE, STRANGER_FROM (the time at which new groups
 * begin), STRANGER_TAGS, STRANGER_SQL (what is subscribed), STRANGER_ACCESS_KEY and STRANGER_SECRET_KEY.
 */

const crypto = require('crypto');
const { Consumer, Message, Producer } = require('ali-ons');

const MAX_LIFETIME_MS = 480000;
const silent = { debug() {}, info() {}, warn() {}, error() {} };
// Without an address service nothing is ever asked by HTTP.
const httpclient = { request: async () => { throw new Error('no address service'); } };

function emit(fields) {
  process.stdout.write(JSON.stringify(fields) + '\n');
}

function options(namesrv, more) {
  return Object.assign({
    nameSrv: namesrv,
    namespace: process.env.STRANGER_NAMESPACE || '',
    httpclient,
    logger: silent,
    accessKey: process.env.STRANGER_ACCESS_KEY,
    secretKey: process.env.STRANGER_SECRET_KEY,
  }, more);
}

function body(i) {
  const length = i % 10 === 9 ? 4096 + i % 2048 : 16 + i % 241;
  const bytes = Buffer.alloc(length);
  for (let j = 0; j < length; j++) {
    bytes[j] = 1 + (i * 131 + j * 17 + Math.floor(j / 251)) % 255;
  }
  return bytes;
}

function message(topic, i) {
  const made = new Message(topic, `tag${i % 4}`, body(i));
  made.keys = [ `key-${i}`, `group-${Math.floor(i / 50)}` ];
  Object.assign(made.properties, { index: String(i), note: `note 天舟 ${i}` });
  return made;
}

// The client gives messages no unique key; the broker does.
function sent(mode, i, result) {
  emit({
    event: 'sent', mode, i, offsetMsgId: result.msgId,
    queueId: Number(result.messageQueue.queueId), queueOffset: result.queueOffset,
    status: result.sendStatus === 'SEND_OK' || result.sendStatus === 0 ? 'SEND_OK' : String(result.sendStatus),
  });
}

async function producer(namesrv, group) {
  const made = new Producer(options(namesrv, {
    producerGroup: group, instanceName: `${group}-${process.pid}`, sendMsgTimeout: 10000, retryTimesWhenSendFailed: 0,
  }));
  made.on('error', error => emit({ event: 'error', error: String(error) }));
  await made.ready();
  return made;
}

async function produce(namesrv, topic, group, first, ...modes) {
  const sender = await producer(namesrv, group);
  let i = Number(first);
  for (const part of modes) {
    const [ mode, count ] = part.split(':');
    if (mode !== 'promise') {
      throw new Error(`unknown mode ${mode}`);
    }
    for (const end = i + Number(count); i < end; i++) {
      sent(mode, i, await sender.send(message(topic, i)));
    }
  }
  await sender.close();
  emit({ event: 'done', failed: 0 });
}

async function send(namesrv, topic, group, way, count, parameter) {
  const sender = await producer(namesrv, group);
  for (let i = 0; i < Number(count); i++) {
    const made = new Message(topic, `tag${i % 4}`, `body ${i}`);
    made.keys = [ `key-${i}` ];
    made.properties.index = String(i);
    if (way === 'delay') {
      made.delayTimeLevel = Number(parameter);
    }
    sent(way, i, await sender.send(made));
  }
  await sender.close();
  emit({ event: 'done', failed: 0 });
}

function untilTheEnd() {
  return new Promise(resolve => {
    process.stdin.on('end', resolve);
    process.stdin.resume();
  });
}

async function member(namesrv, name, group, more) {
  const made = new Consumer(options(namesrv, Object.assign({
    consumerGroup: group, instanceName: `${name}-${group}`, consumeFromWhere: 'CONSUME_FROM_FIRST_OFFSET',
    rebalanceInterval: 2000, pollNameServerInteval: 2000,
  }, more)));
  made.on('error', error => emit({ event: 'noise', text: String(error && error.stack) }));
  await made.ready();
  return made;
}

async function consume(namesrv, ...specs) {
  const consumers = [];
  for (const [ n, spec ] of specs.entries()) {
    const [ role, group, topics ] = spec.split(':');
    const name = `${role}-${n}`;
    const consumer = await member(namesrv, name, group);
    for (const topic of topics.split(',')) {
      consumer.subscribe(topic, '*', async got => received(name, got));
    }
    consumers.push(consumer);
  }
  emit({ event: 'started' });
  await untilTheEnd();
  for (const consumer of consumers) {
    await consumer.close();
  }
  emit({ event: 'done' });
}

function index(got) {
  const text = got.properties.index;
  return text === undefined ? -1 : Number(text);
}

function received(name, got) {
  emit({
    event: 'received', consumer: name, topic: got.topic, i: index(got), msgId: got.properties.UNIQ_KEY,
    offsetMsgId: got.msgId, uniqueKey: got.properties.UNIQ_KEY, queueId: got.queueId, queueOffset: got.queueOffset,
    bodyLength: got.body.length, bodySha256: crypto.createHash('sha256').update(got.body).digest('hex'),
    tags: got.tags, keys: got.keys, property: got.properties.note, sysFlag: got.sysFlag,
    reconsumeTimes: got.reconsumeTimes, bornTimestamp: got.bornTimestamp, storeTimestamp: got.storeTimestamp,
    failed: false,
  });
}

async function take(namesrv, role, group, topic, members) {
  const consumers = [];
  const more = { isBroadcast: role === 'broadcasting', maxReconsumeTimes: role === 'dead' ? 2 : 16 };
  if (process.env.STRANGER_FROM) {
    Object.assign(more, { consumeFromWhere: 'CONSUME_FROM_TIMESTAMP', consumeTimestamp: process.env.STRANGER_FROM });
  }
  const sql = process.env.STRANGER_SQL;
  const wanted = sql ? { expressionType: 'SQL92', subString: sql } : process.env.STRANGER_TAGS || '*';
  for (let n = 0; n < Number(members); n++) {
    const name = `${role}-${n}`;
    const consumer = await member(namesrv, name, group, more);
    consumer.subscribe(topic, wanted, async got => {
      const i = index(got);
      const fail = role === 'dead' && i === 5 || role === 'again' && i % 10 === 7 && got.reconsumeTimes === 0;
      emit({
        event: 'received', consumer: name, i, topic: got.topic, tags: got.tags, queueId: got.queueId,
        queueOffset: got.queueOffset, reconsumeTimes: got.reconsumeTimes, together: 1,
        bornTimestamp: got.bornTimestamp, storeTimestamp: got.storeTimestamp, at: Date.now(), failed: fail,
      });
      if (fail) {
        // Of what comes from the retry topic the client forgets what the handler returns.
        throw new Error('refused');
      }
    });
    consumers.push(consumer);
  }
  emit({ event: 'started' });
  await untilTheEnd();
  for (const consumer of consumers) {
    await consumer.close();
  }
  emit({ event: 'done' });
}

setTimeout(() => {
  emit({ event: 'timeout' });
  process.exit(3);
}, MAX_LIFETIME_MS).unref();

const [ command, ...rest ] = process.argv.slice(2);
const commands = { produce, consume, send, take };
commands[command](...rest).then(
  // The client's timers and connections would keep the process alive.
  () => process.stdout.write('', () => process.exit(0)),
  error => {
    emit({ event: 'error', error: String(error && error.stack) });
    process.stdout.write('', () => process.exit(1));
  }
);
