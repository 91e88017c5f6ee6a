import java.lang.reflect.InvocationTargetException;
import java.util.Arrays;

/**
 * Runs another program, and does not let the end of its clients wait for nothing: one thread of the client of 5.3.3
 * looks up from its empty queue every three seconds only, and whoever shuts the client down waits for it.
 */
public final class Impatient {
    private static final int LOOK_EVERY_MS = 50;

    private Impatient() {
    }

    public static void main(String[] args) throws Throwable {
        hurry(Thread.currentThread());
        try {
            Class.forName(args[0]).getMethod("main", String[].class)
                .invoke(null, (Object) Arrays.copyOfRange(args, 1, args.length));
        } catch (InvocationTargetException error) {
            throw error.getCause();
        }
    }

    /** Whenever that thread waits for a client's threads to end, wakes those that only wait for work. */
    private static void hurry(Thread ending) {
        Thread hurrying = new Thread(() -> {
            while (true) {
                try {
                    Thread.sleep(LOOK_EVERY_MS);
                } catch (InterruptedException error) {
                    return;
                }
                boolean waits = Arrays.stream(ending.getStackTrace())
                    .anyMatch(one -> one.getMethodName().equals("shutdown") && one.getClassName().endsWith("ServiceThread"));
                if (waits) {
                    Thread[] all = new Thread[Thread.activeCount() + 16];
                    int count = Thread.enumerate(all);
                    for (int n = 0; n < count; n++) {
                        if (all[n].getName().equals("NettyEventExecutor")) {
                            all[n].interrupt();
                        }
                    }
                }
            }
        });
        hurrying.setDaemon(true);
        hurrying.start();
    }
}
