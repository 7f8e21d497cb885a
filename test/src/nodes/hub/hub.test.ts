import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import {
  eventually,
  type NodesStage,
  openNodesStage,
  readAll,
  textOf,
} from '../../../support/nodes-stage.ts'
import { answerWith } from '../../../support/scripted-node.ts'

describe('a call on a node', () => {
  let stage: NodesStage
  beforeEach(async () => {
    stage = await openNodesStage()
  })
  afterEach(() => stage.close())

  it('a call is answered by a client that follows the public protocol', async () => {
    const node = await stage.connect({ nodeId: 'one', answer: answerWith('a b c') })
    const answer = await stage.dispatch({
      request: { model: 'model-a', messages: [], temperature: 0.5 },
    })
    const chunks = await readAll(answer)
    expect(answer.nodeId).toBe('one')
    expect(textOf(chunks)).toBe('a b c')
    expect(chunks.at(-1)?.usage).toEqual({
      prompt_tokens: 9,
      completion_tokens: 3,
      total_tokens: 12,
    })
    expect(node.calls).toEqual([
      {
        id: expect.stringMatching(/^[0-9a-f-]{36}$/),
        model: 'model-a',
        chat_request: { model: 'model-a', messages: [], temperature: 0.5 },
      },
    ])
    expect(node.extensions).toBe('')
  })

  it('a call may end with both a usage chunk and status 2, as often as the node likes', async () => {
    await stage.close()
    stage = await openNodesStage({ strayBurst: 3, strayPerSecond: 0.001 })
    const node = await stage.connect()
    for (let count = 0; count < 20; count++) await readAll(await stage.dispatch())
    expect(node.socket.readyState).toBe(node.socket.OPEN)
  })

  it('a call leaves nothing behind after a stop', async () => {
    await stage.connect()
    await Promise.all(Array.from({ length: 10 }, async () => readAll(await stage.dispatch())))
    await stage.nodes.stop()
    expect(stage.nodes.status()).toEqual({
      connected: 0,
      serving: 0,
      slotsInUse: 0,
      runs: 0,
      queued: 0,
      probes: 0,
      imageBytes: 0,
      handshakes: 0,
      sockets: 0,
      timers: 0,
      writes: 0,
    })
    expect(stage.registry.served).toHaveLength(10)
  })
})

describe('a connected node', () => {
  let stage: NodesStage
  afterEach(() => stage.close())

  it('a connected node is pinged and asked for its health the way the public client expects', async () => {
    stage = await openNodesStage({ pingMs: 20, healthMs: 20 })
    const node = await stage.connect({ nodeId: 'one' })
    await eventually(() => node.controls.length >= 6, 'asked several times')
    const pings = node.controls.filter(({ protocol }) => protocol === 'ping-pong')
    expect(pings[0]?.data).toEqual({
      protocol_version: '1.0',
      message_type: 1,
      node_id: 'one',
      nonce: expect.any(String),
      rtt: 0,
      ping_streak: 0,
      miss_streak: 0,
    })
    await eventually(
      () => pings.length > 0 && node.controls.at(-1)?.data.ping_streak !== 0,
      'answered',
    )
    expect(stage.nodes.status().connected).toBe(1)
  })

  it('a node that is half-open is disconnected, and its runs end', async () => {
    stage = await openNodesStage({ silenceMs: 50, silenceTimeoutMs: 50, firstTokenMs: 5_000 })
    const node = await stage.connect()
    node.socket.pause()
    await expect(stage.dispatch()).rejects.toMatchObject({ code: 'node_lost' })
    expect(stage.nodes.status()).toMatchObject({ connected: 0, slotsInUse: 0 })
  })

  it('a node that is silent but answers WebSocket pings stays', async () => {
    stage = await openNodesStage({ silenceMs: 20, silenceTimeoutMs: 5_000 })
    const node = await stage.connect()
    let pings = 0
    node.socket.on('ping', () => pings++)
    await eventually(() => pings > 3, 'it was pinged several times')
    expect(stage.nodes.status().connected).toBe(1)
  })

  it('a node that announces its drain finishes what it has and gets nothing more', async () => {
    stage = await openNodesStage({ waitMs: 30 })
    const node = await stage.connect({ nodeId: 'one', headers: { 'Node-Features': 'drain' } })
    const drain = { protocol_version: '1.0', message_type: 1, node_id: 'one' }
    node.send({ protocol: 'drain', data: drain })
    await eventually(() => stage.nodes.status().serving === 0, 'drains')
    await expect(stage.dispatch()).rejects.toMatchObject({ code: 'no_nodes' })
    expect(stage.nodes.status().connected).toBe(1)
  })
})
