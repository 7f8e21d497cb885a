import { type ChildProcess, fork } from 'node:child_process'
import { once } from 'node:events'
import { join } from 'node:path'

/** Starts the bare forwarder (forwarder.ts) in front of `upstream`, an origin. */
export async function startForwarder(
  upstream: string,
): Promise<{ process: ChildProcess; origin: string }> {
  const child = fork(join(import.meta.dirname, 'forwarder.ts'), [upstream], {
    stdio: ['ignore', 'pipe', 'inherit', 'ipc'],
  })
  if (!child.stdout) throw new Error('the forwarder has no output')
  const [line] = await once(child.stdout, 'data')
  return { process: child, origin: `http://127.0.0.1:${String(line).trim()}` }
}
