import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { eventually, type NodesStage, openNodesStage, readAll, textOf } from '../../support/nodes-stage.ts'
import { answerWith } from '../../support/scripted-node.ts'

describe('a call on a node', () => {
  let stage: NodesStage
  beforeEach(async () => {
    stage = await openNodesStage()
  })
  afterEach(() => stage.close())

  it('is answered by a client that follows the public protocol', async () => {
    const node = await stage.connect({ nodeId: 'one', answer: answerWith('a b c') })
    const answer = await stage.dispatch({ request: { model: 'model-a', messages: [], temperature: 0.5 } })
    const chunks = await readAll(answer)
    expect(answer.nodeId).toBe('one')
    expect(textOf(chunks)).toBe('a b c')
    expect(chunks.at(-1)?.usage).toEqual({ prompt_tokens: 9, completion_tokens: 3, total_tokens: 12 })
    expect(node.calls).toEqual([
      {
        id: expect.stringMatching(/^[0-9a-f-]{36}$/),
        model: 'model-a',
        chat_request: { model: 'model-a', messages: [], temperature: 0.5 },
      },
    ])
    expect(node.extensions).toBe('')
  })

  it('is answered by an old client without status frames', async () => {
    await stage.connect({ isOld: true, answer: answerWith('a b c') })
    expect(textOf(await readAll(await stage.dispatch()))).toBe('a b c')
    expect(stage.nodes.status()).toMatchObject({ slotsInUse: 0, runs: 0 })
  })

  it('leaves nothing behind', async () => {
    await stage.connect()
    await Promise.all(Array.from({ length: 10 }, async () => readAll(await stage.dispatch())))
    await stage.nodes.stop()
    expect(stage.nodes.status()).toEqual({
      ...{ connected: 0, serving: 0, slotsInUse: 0, runs: 0, queued: 0, probes: 0 },
      ...{ handshakes: 0, sockets: 0, timers: 0, writes: 0 },
    })
    expect(stage.registry.served).toHaveLength(10)
  })

  it('counts for the node with the time the gateway measured', async () => {
    await stage.connect({ nodeId: 'one', answer: answerWith('a b c') })
    await readAll(await stage.dispatch())
    await eventually(() => stage.registry.served.length === 1, 'stored')
    const [row] = stage.registry.served
    expect(row).toMatchObject({ nodeId: 'one', model: 'model-a', promptTokens: 9, completionTokens: 3 })
    expect(row?.timeToFirstTokenMs).toBeGreaterThanOrEqual(0)
    expect(row?.timeToFirstTokenMs).toBeLessThan(1_000)
  })
})
