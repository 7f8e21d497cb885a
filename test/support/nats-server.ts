import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { connect } from 'node:net'
import { awaitFreePort } from '#src/local/free-port.ts'
import { needProgram } from './needs.ts'
import { until } from './until.ts'

/** NATS's server. */
export const NATS = needProgram('nats-server')

/** The key by which the gateways of a test know each other. */
export const BUS_KEY = new Uint8Array(32).fill(7)

/** A real server on a free port. */
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
