import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

import org.apache.rocketmq.tools.command.MQAdminStartup;

/** Runs mqadmin commands, one a line with tabs between the arguments, and prints what each prints, then a mark. */
public class Mqadmin {
    private static final String MARK = "=== end of command";
    private static final int SECONDS = 60;

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
            String[] command = line.split("\t", -1);
            ByteArrayOutputStream printed = new ByteArrayOutputStream();
            PrintStream sink = new PrintStream(printed, true, "UTF-8");
            System.setOut(sink);
            System.setErr(sink);
            Future<?> running = pool.submit(() -> MQAdminStartup.main0(command, null));
            try {
                running.get(SECONDS, TimeUnit.SECONDS);
            } catch (TimeoutException error) {
                running.cancel(true);
                sink.println("TIMEOUT after " + SECONDS + " s");
            } catch (Exception error) {
                error.printStackTrace(sink);
            }
            System.setOut(console);
            System.setErr(errors);
            console.write(printed.toByteArray());
            console.println();
            console.println(MARK);
            console.flush();
        }
        System.exit(0);
    }
}
