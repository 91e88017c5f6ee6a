import java.io.PrintStream;
import java.util.HashSet;
import java.util.Set;
import org.junit.runner.Description;
import org.junit.runner.JUnitCore;
import org.junit.runner.notification.Failure;
import org.junit.runner.notification.RunListener;

/** Runs JUnit classes and prints one line a test: {@code ok|failed<TAB>class<TAB>test<TAB>error}. */
public class Integration {
    public static void main(String[] classes) throws Exception {
        PrintStream lines = System.out;
        System.setOut(System.err); // the tests log there
        JUnitCore core = new JUnitCore();
        core.addListener(new RunListener() {
            private final Set<Description> failed = new HashSet<>();

            @Override
            public void testFailure(Failure failure) {
                failed.add(failure.getDescription());
                tell("failed", failure.getDescription(), String.valueOf(failure.getException()));
            }

            @Override
            public void testFinished(Description test) {
                if (!failed.contains(test)) {
                    tell("ok", test, "");
                }
            }

            private void tell(String how, Description test, String error) {
                String text = error.replaceAll("\\s+", " ");
                lines.println(String.join("\t", how, test.getClassName(), String.valueOf(test.getMethodName()), text));
                lines.flush();
            }
        });
        for (String name : classes) {
            core.run(Class.forName(name));
        }
        System.exit(0);
    }
}
