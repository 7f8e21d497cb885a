import { randomUUID } from 'node:crypto'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { type Bus, startBus } from '../../../src/bus/bus.ts'
import { judgeAnswer } from '../../../src/chat/chat-completions.ts'
import { createLogger } from '../../../src/observability/logger.ts'
import { HAS_NATS, type NatsServer, natsTitle, startNatsServer } from '../../support/nats-server.ts'
import {
  eventually,
  MODEL,
  NOTHING_HELD,
  type NodesStage,
  openNodesStage,
  readAll,
  textOf,
} from '../../support/nodes-stage.ts'
import { answerError, answerSilence, answerWith } from '../../support/scripted-node.ts'

let nats: NatsServer
beforeAll(async () => {
  if (HAS_NATS) nats = await startNatsServer()
})
afterAll(() => nats?.stop())

type Gateway = { readonly bus: Bus; readonly stage: NodesStage }

async function openGateway(prefix: string): Promise<Gateway> {
  const log = createLogger({ level: 'silent', destination: { write: () => undefined } })
  const bus = startBus(
    { servers: [nats.url], credentialsFile: null, caFile: null, subjectPrefix: prefix },
    { makeId: randomUUID, log },
  )
  const stage = await openNodesStage({ waitMs: 2_000 }, { bus, judge: judgeAnswer })
  return { bus, stage }
}

let near: Gateway
let far: Gateway
beforeEach(async () => {
  if (!HAS_NATS) return
  const prefix = `test-${randomUUID()}`
  near = await openGateway(prefix)
  far = await openGateway(prefix)
  await eventually(() => near.bus.peers().length + far.bus.peers().length === 2, 'they meet')
})
afterEach(async () => {
  if (!HAS_NATS) return
  for (const { bus, stage } of [near, far]) {
    await stage.close()
    expect(stage.nodes.status()).toMatchObject(NOTHING_HELD)
    await eventually(() => bus.status().channels === 0, 'no channel is left')
    await bus.stop()
  }
})

const known = () =>
  eventually(() => near.stage.nodes.dispatcher.models().length > 0, 'the nodes are known')

describe.runIf(HAS_NATS)(natsTitle('nodes of another gateway'), () => {
  it('serve calls here, chunk by chunk', async () => {
    await far.stage.connect({ answer: answerWith('from far') })
    await known()
    expect(near.stage.nodes.dispatcher.models()).toEqual([{ model: MODEL, nodes: 1 }])
    expect(textOf(await readAll(await near.stage.dispatch()))).toBe('from far')
  })

  it('tell their refusals as nodes here do', async () => {
    await far.stage.connect({ answer: answerError(400, 'no such tool') })
    await known()
    await expect(near.stage.dispatch()).rejects.toMatchObject({
      code: 'node_refused',
      status: 400,
      nodeMessage: 'no such tool',
    })
  })

  it('are waited for', async () => {
    const call = near.stage.dispatch({ model: MODEL }).catch((error: unknown) => error)
    await far.stage.connect({ answer: answerWith('late') })
    await known()
    expect(await call).toMatchObject({ code: 'unsupported_model' })
    const node = await far.stage.connect({ answer: answerSilence(0) })
    void node
  })
})
