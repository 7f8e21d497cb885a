import { copyFile } from 'node:fs/promises'
import { expect, it } from 'vitest'
import { createAnchorsStore } from '#src/chain/anchors-store.ts'
import { openDatabase } from '#src/storage/database.ts'
import { useBroadcastStage } from '../../../support/broadcast-stage.ts'
import { startTestChain } from '../../../support/chain.ts'
import type { ProxyAction } from '../../../support/chain-proxy.ts'
import { startPostgres } from '../../../support/postgres.ts'
import { until } from '../../../support/until.ts'

const stage = useBroadcastStage()

it('a chain that comes back from an older state gets everything again, under the same hashes', async () => {
  const state = `${stage.chain.folder}/chain/state.json`
  await copyFile(state, `${state}.old`)
  await stage.add(30)
  stage.broadcast()
  await stage.untilConfirmed(30)
  const before = stage.anchors.all()
  await stage.chain.stop()
  await copyFile(`${state}.old`, state)
  const again = await startTestChain({ folder: stage.chain.folder, port: stage.chain.port })
  await until(
    'blocks changed',
    () => stage.anchors.all().at(-1)?.blockHash !== before.at(-1)?.blockHash,
  )
  await stage.untilConfirmed(30)
  await stage.expectAllAnchored()
  expect(stage.anchors.all().map((row) => row.txHash)).toEqual(before.map((row) => row.txHash))
  expect(
    stage.logLines.filter((line) => line.level === 'warn').map((line) => line.message),
  ).toContain('anchors are no longer on the chain; they are followed again')
  await again.stop()
})

it('a chain that is killed over and over while anchors come in loses nothing', async () => {
  const broadcaster = stage.broadcast()
  for (let kill = 0; kill < 5; kill++) {
    await stage.add(20)
    broadcaster.notify()
    await new Promise((resolve) => setTimeout(resolve, 30 + kill * 60))
    if (stage.chain.pid !== null) process.kill(stage.chain.pid, 'SIGKILL')
  }
  await stage.untilConfirmed(100, 30_000)
  await until('the chain is back and the store knows where they are', async () => {
    return (await stage.staleCount().catch(() => null)) === 0
  })
  await stage.expectAllAnchored()
})

it('a chain gets a transaction again that it took and forgot', async () => {
  let swallowed = 0
  stage.proxy.behave((methods) => {
    if (!methods.includes('eth_sendRawTransaction') || swallowed > 0) return { kind: 'pass' }
    swallowed += 1
    const replies = methods.map((_, id) => ({
      jsonrpc: '2.0',
      id,
      result: `0x${'00'.repeat(32)}`,
    }))
    return { kind: 'answer', body: JSON.stringify(replies) }
  })
  await stage.add(3)
  stage.broadcast()
  await stage.untilConfirmed(3)
  expect(swallowed).toBe(1)
  await stage.expectAllAnchored()
})

const alter = (from: string, to: string): ProxyAction => ({
  kind: 'alter',
  alter: (answer) => answer.replaceAll(from, to),
})
const answer = (body: string | Buffer, status = 200): ProxyAction => ({
  kind: 'answer',
  body,
  status,
})

it.each<[string, ProxyAction]>([
  ['bad_answer', answer('<html>busy</html>')],
  ['bad_answer', answer(Buffer.of(0xff, 0xfe, 0x00))],
  ['bad_answer', answer('[]')],
  ['bad_answer', answer('[null,7,"x"]')],
  ['bad_answer', answer('{"jsonrpc":"2.0","id":0,"result":"0x1"}')],
  ['bad_answer', alter('"0x', '"zz')],
  ['bad_answer', alter('"0x', '"0xffffffffffffffffffff')],
  ['refused', alter('"result"', '"error":{"code":1},"was"')],
  ['bad_status', answer('[]', 503)],
  ['bad_status', answer('', 302)],
  ['answer_too_large', answer(Buffer.alloc(9 * 1024 * 1024, 0x20))],
  ['timeout', { kind: 'hang' }],
  ['unreachable', { kind: 'drop_answer' }],
])(
  'a chain that answers nonsense is reported as %s, and used again when it is well (%#)',
  async (code, action) => {
    let isIll = true
    stage.proxy.behave(() => (isIll ? action : { kind: 'pass' }))
    await stage.add(5)
    const broadcaster = stage.broadcast()
    await until('the fault shows', () => broadcaster.status().fault !== null)
    expect(broadcaster.status()).toMatchObject({
      phase: 'failing',
      isChainFailing: true,
      fault: { code },
    })
    isIll = false
    await stage.untilConfirmed(5)
    expect(broadcaster.status().fault).toBeNull()
    await stage.expectAllAnchored()
  },
)

it('a chain is not blamed for a Postgres that is away', async () => {
  const postgres = await startPostgres()
  const database = await openDatabase({ url: postgres.url })
  try {
    const broadcaster = stage.broadcast({ anchors: createAnchorsStore(database) })
    await until('a round is over', () => broadcaster.status().phase === 'idle')
    await postgres.kill()
    await until('the fault shows', () => broadcaster.status().fault?.code === 'store_failed')
    expect(broadcaster.status()).toMatchObject({ phase: 'failing', isChainFailing: false })
    await postgres.restart()
    await until('it is over', () => broadcaster.status().phase === 'idle')
    await broadcaster.stop()
    expect(stage.logLines.map(({ level, message }) => [level, message])).toEqual([
      ['warn', 'anchors cannot be read or marked in the database; it is tried again'],
      ['info', 'anchors can be read and marked in the database again'],
    ])
  } finally {
    await database.close()
    await postgres.stop()
  }
})
