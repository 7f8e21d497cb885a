import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { connect, type Socket } from 'node:net'
import { join } from 'node:path'
import { afterEach, expect, it } from 'vitest'
import { type ConnectionLoad, connectionsMaxOf } from '#src/api/server.ts'
import { createDescriptorsLook } from '#src/observability/watch-descriptors.ts'
import { childEnvironment } from '../../support/child-environment.ts'

const DESCRIPTORS = 160

const ends: (() => unknown)[] = []
afterEach(() => {
  for (const end of ends.splice(0).reverse()) end()
})

/** A server that may have so many descriptors; by default it takes as many connections as it should. */
async function start(...connectionsMax: string[]) {
  const program = join(import.meta.dirname, '../../support/crowded-server.ts')
  const words = [`ulimit -n ${DESCRIPTORS}; exec "$0" "$@"`, process.execPath, program]
  const child: ChildProcess = spawn('/bin/sh', ['-c', ...words, ...connectionsMax], {
    stdio: ['ignore', 'ignore', 'inherit', 'ipc'],
    env: childEnvironment(),
  })
  ends.push(() => child.kill('SIGKILL'))
  const [{ port }] = (await once(child, 'message')) as [{ port: number }]
  const load = async () => {
    child.send('load')
    const [said] = await once(child, 'message')
    return said as ConnectionLoad & { descriptors: number }
  }
  return { child, port, load }
}

/** Connections that say nothing. */
async function crowd(port: number, count: number): Promise<readonly Socket[]> {
  const sockets = Array.from({ length: count }, () => connect(port, '127.0.0.1'))
  for (const socket of sockets) socket.on('error', () => undefined)
  ends.push(() => {
    for (const socket of sockets) socket.destroy()
  })
  await Promise.all(
    sockets.map((socket) => Promise.race([once(socket, 'connect'), once(socket, 'close')])),
  )
  return sockets
}

const answerAt = (port: number) =>
  fetch(`http://127.0.0.1:${port}/`, { headers: { connection: 'close' } }).then(
    (reply) => reply.text(),
    () => null,
  )

it('silent connections take three quarters of the descriptors at most, and are counted', async () => {
  const { port, load } = await start()
  const max = connectionsMaxOf(DESCRIPTORS)
  await crowd(port, DESCRIPTORS * 2)
  await expect.poll(async () => (await load()).silent).toBe(max)
  const { open, descriptors } = await load()
  expect(open).toBe(max)
  expect(descriptors).toBeLessThan(DESCRIPTORS)
})

it('a server that silent connections leave no descriptor does not end, and serves when they are gone', async () => {
  const { child, port, load } = await start('100000')
  const sockets = await crowd(port, DESCRIPTORS * 2)
  await expect.poll(async () => (await load()).descriptors).toBeGreaterThanOrEqual(DESCRIPTORS - 2)
  for (const socket of sockets) socket.destroy()
  await expect.poll(() => answerAt(port)).toBe('here')
  expect(child.exitCode).toBeNull()
})

it('a lack of descriptors is told once in a while, and when there are enough again', async () => {
  const lines: string[] = []
  const used = { count: 10, atMs: 0 }
  const look = createDescriptorsLook(
    { count: () => used.count, max: 100, connections: async () => ({ open: 70, silent: 60 }) },
    {
      warn: (facts, text) => void lines.push(`${text} ${JSON.stringify(facts)}`),
      info: (_, text) => void lines.push(text),
    },
    () => used.atMs,
  )
  await look()
  used.count = 80
  await look()
  await look()
  expect(lines).toEqual([
    'file descriptors run out {"descriptors":80,"descriptors_max":100,"connections":70,"silent":60}',
  ])
  used.atMs = 60_000
  await look()
  used.count = 10
  await look()
  await look()
  expect(lines.slice(1).map((line) => line.split(' {')[0])).toEqual([
    'file descriptors run out',
    'file descriptors suffice again',
  ])
})
