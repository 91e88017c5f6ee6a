import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicReference;

import org.apache.rocketmq.tools.command.MQAdminStartup;

/**
 * Runs mqadmin commands, one a line with tabs between the arguments, and prints what each prints, then a mark. Wrong usage
 * ends the process, as it does Apache's tool; what was printed is shown all the same. A first word <code>limit=5</code>
 * interrupts a command after five seconds.
 */
public class Mqadmin {
    private static final String MARK = "=== end of command";
    private static final String LAST_MARK = "=== end of process";
    private static final String LIMIT = "limit=";
    private static final int SECONDS = 60;
    private static final int LOOK_EVERY_MS = 50;

    public static void main(String[] arguments) throws Exception {
        PrintStream console = System.out;
        PrintStream errors = System.err;
        ExecutorService pool = Executors.newCachedThreadPool(task -> {
            Thread thread = new Thread(task);
            thread.setDaemon(true);
            return thread;
        });
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        String line;
        while ((line = input.readLine()) != null) {
            String[] words = line.split("\t", -1);
            boolean limited = words[0].startsWith(LIMIT);
            int seconds = limited ? Integer.parseInt(words[0].substring(LIMIT.length())) : SECONDS;
            String[] command = limited ? Arrays.copyOfRange(words, 1, words.length) : words;
            ByteArrayOutputStream printed = new ByteArrayOutputStream();
            Thread atExit = new Thread(() -> show(console, printed, LAST_MARK));
            Runtime.getRuntime().addShutdownHook(atExit);
            PrintStream sink = new PrintStream(printed, true, "UTF-8");
            System.setOut(sink);
            System.setErr(sink);
            AtomicReference<Thread> thread = new AtomicReference<>();
            Future<?> running = pool.submit(() -> {
                thread.set(Thread.currentThread());
                MQAdminStartup.main0(command, null);
            });
            try {
                long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(seconds);
                while (!running.isDone() && System.nanoTime() < end) {
                    try {
                        running.get(LOOK_EVERY_MS, TimeUnit.MILLISECONDS);
                    } catch (TimeoutException error) {
                        hurry(thread.get());
                    }
                }
                if (!running.isDone()) {
                    running.cancel(true);
                    sink.println("TIMEOUT after " + seconds + " s");
                }
            } catch (Exception error) {
                error.printStackTrace(sink);
            }
            System.setOut(console);
            System.setErr(errors);
            Runtime.getRuntime().removeShutdownHook(atExit);
            show(console, printed, MARK);
        }
        System.exit(0);
    }

    private static void show(PrintStream console, ByteArrayOutputStream printed, String mark) {
        byte[] bytes = printed.toByteArray();
        console.write(bytes, 0, bytes.length);
        console.println();
        console.println(mark);
        console.flush();
    }

    /**
     * A command ends with its client, whose end waits for a thread that looks up from its empty queue every three seconds
     * only.
     */
    private static void hurry(Thread command) {
        if (command == null || Arrays.stream(command.getStackTrace()).noneMatch(
            one -> one.getMethodName().equals("shutdown") && one.getClassName().endsWith("ServiceThread"))) {
            return;
        }
        Thread[] all = new Thread[Thread.activeCount() + 16];
        int count = Thread.enumerate(all);
        for (int n = 0; n < count; n++) {
            if (all[n].getName().equals("NettyEventExecutor")) {
                all[n].interrupt();
            }
        }
    }
}
