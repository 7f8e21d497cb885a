import { type ChildProcess, spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { connect } from 'node:net'
import { awaitFreePort } from '../../src/local/free-port.ts'
import { until } from './until.ts'

/** Whether this machine has NATS's server (Debian: nats-server). */
export const HAS_NATS = spawnSync('nats-server', ['--version']).status === 0

/** A title that says why its tests are skipped where they are. */
export const natsTitle = (title: string) =>
  HAS_NATS ? title : `${title} (skipped without a nats-server)`

/** A real server, on a port of its own, started with these arguments too. */
export type NatsServer = {
  readonly url: string
  pid(): number
  kill(): Promise<void>
  /** Starts it again on the same port. */
  restart(): Promise<void>
  stop(): Promise<void>
}

export async function startNatsServer(more: readonly string[] = []): Promise<NatsServer> {
  const port = await awaitFreePort(0)
  let process = await start(port, more)
  const kill = async () => {
    if (process.exitCode !== null || process.signalCode !== null) return
    process.kill('SIGKILL')
    await once(process, 'exit')
  }
  return {
    url: `nats://127.0.0.1:${port}`,
    pid: () => process.pid ?? 0,
    kill,
    restart: async () => {
      process = await start(port, more)
    },
    stop: kill,
  }
}

async function start(port: number, more: readonly string[]): Promise<ChildProcess> {
  const given = ['-a', '127.0.0.1', '-p', String(port), ...more]
  const process = spawn('nats-server', given, { stdio: 'ignore' })
  await until('nats-server listens', () => listens(port))
  return process
}

async function listens(port: number): Promise<boolean> {
  const socket = connect(port, '127.0.0.1')
  try {
    await once(socket, 'connect')
    return true
  } catch {
    return false
  } finally {
    socket.destroy()
  }
}
