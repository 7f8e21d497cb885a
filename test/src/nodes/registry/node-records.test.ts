import { expect, it } from 'vitest'
import { createNodeRecords } from '#src/nodes/registry/node-records.ts'
import { createLogger } from '#src/observability/logger.ts'

const later = (ms: number) => new Promise<void>((resolve) => setTimeout(resolve, ms))

it('writes about a node are done in the order they were asked for, and not kept from other nodes', async () => {
  const records = createNodeRecords(
    createLogger({ level: 'silent', destination: { write: () => undefined } }),
  )
  const done: string[] = []
  records.write('a', async () => {
    await later(30)
    done.push('a went')
  })
  records.write('a', async () => void done.push('a came'))
  records.write('b', async () => void done.push('b'))
  await records.settled('b')
  expect(done).toEqual(['b'])
  await records.allSettled()
  expect(done).toEqual(['b', 'a went', 'a came'])
  expect(records.pending()).toBe(0)
})

it('writes about a node go on after one write that failed', async () => {
  const records = createNodeRecords(
    createLogger({ level: 'silent', destination: { write: () => undefined } }),
  )
  let isDone = false
  records.write('a', () => Promise.reject(new Error('away')))
  records.write('a', async () => {
    isDone = true
  })
  await records.allSettled()
  expect(isDone).toBe(true)
})
