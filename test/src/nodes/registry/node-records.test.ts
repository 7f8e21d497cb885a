import { expect, it } from 'vitest'
import { createNodeRecords } from '#src/nodes/registry/node-records.ts'
import { createLogger } from '#src/observability/logger.ts'

const log = createLogger({ level: 'silent', destination: { write: () => undefined } })

it('writes about a node are done in the order they were asked for, and not kept from other nodes', async () => {
  const records = createNodeRecords(log)
  const { promise, resolve } = Promise.withResolvers<void>()
  const done: string[] = []
  records.write('a', () => promise.then(() => void done.push('a went')))
  records.write('a', async () => void done.push('a came'))
  records.write('b', async () => void done.push('b'))
  await records.settled('b')
  expect([done, records.pending()]).toEqual([['b'], 1])
  resolve()
  await records.allSettled()
  expect([done, records.pending()]).toEqual([['b', 'a went', 'a came'], 0])
})

it('writes about a node go on after one write that failed', async () => {
  const records = createNodeRecords(log)
  let isDone = false
  records.write('a', () => Promise.reject(new Error('away')))
  records.write('a', async () => {
    isDone = true
  })
  await records.allSettled()
  expect(isDone).toBe(true)
})
