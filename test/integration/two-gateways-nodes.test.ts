import OpenAI from 'openai'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { NATS, type NatsServer, startNatsServer } from '../support/nats-server.ts'
import { openPlainStage, type PlainStage } from '../support/plain-stage.ts'
import { answerWith } from '../support/scripted-node.ts'
import { createTestDatabase } from '../support/test-database.ts'
import { until } from '../support/until.ts'

const MODEL = 'shared-model'

let nats: NatsServer
let near: PlainStage
let far: PlainStage

const modelsAt = async ({ gateway: { url, key } }: PlainStage) => {
  const reply = await fetch(`${url}/v1/models`, { headers: { authorization: `Bearer ${key}` } })
  const { data } = (await reply.json()) as { readonly data: readonly { readonly id: string }[] }
  return data.map(({ id }) => id)
}

const clientOf = ({ gateway: { url, key } }: PlainStage) =>
  new OpenAI({ baseURL: `${url}/v1`, apiKey: key, maxRetries: 0 })

describe.runIf(NATS.isMet)(NATS.title('two gateways on one database and one bus'), () => {
  beforeAll(async () => {
    nats = await startNatsServer()
    const url = await createTestDatabase()
    const bus = {
      servers: [nats.url],
      credentialsFile: null,
      caFile: null,
      subjectPrefix: 'two-gateways',
    }
    const open = () =>
      openPlainStage({ settings: { bus }, postgres: { createDatabase: async () => url } })
    near = await open()
    far = await open()
  })
  afterAll(async () => {
    await near?.stop()
    await far?.stop()
    await nats?.stop()
  })

  it('two gateways list the same models within 2 s of a node’s coming and going, and answer at either', async () => {
    const node = await far.connect({ model: MODEL, answer: answerWith('from far away') })
    const cameAtMs = performance.now()
    await until('both tell it', async () =>
      (await Promise.all([near, far].map(modelsAt))).every((models) => models.includes(MODEL)),
    )
    expect(performance.now() - cameAtMs).toBeLessThan(2_000)
    for (const stage of [near, far]) {
      const client = clientOf(stage)
      expect(await client.models.retrieve(MODEL)).toMatchObject({ id: MODEL })
      const asked = { model: MODEL, messages: [{ role: 'user' as const, content: 'Hi' }] }
      const whole = await client.chat.completions.create(asked)
      expect(whole.choices[0]?.message.content).toBe('from far away')
      const stream = await client.chat.completions.create({ ...asked, stream: true })
      let text = ''
      for await (const chunk of stream) text += chunk.choices[0]?.delta.content ?? ''
      expect(text).toBe('from far away')
    }
    const wentAtMs = performance.now()
    await node.close()
    await until('neither tells it', async () =>
      (await Promise.all([near, far].map(modelsAt))).every((models) => !models.includes(MODEL)),
    )
    expect(performance.now() - wentAtMs).toBeLessThan(2_000)
  })
})
