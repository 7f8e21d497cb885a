import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { NATS, type NatsServer, startNatsServer } from '../support/nats-server.ts'
import { openPlainStage, type PlainStage } from '../support/plain-stage.ts'
import { answerWith as answerChatWith, startScriptedBackend } from '../support/scripted-backend.ts'
import { createTestDatabase } from '../support/test-database.ts'
import { until } from '../support/until.ts'

let nats: NatsServer
let near: PlainStage
let far: PlainStage

const modelsAt = async ({ gateway: { url, key } }: PlainStage) => {
  const reply = await fetch(`${url}/v1/models`, { headers: { authorization: `Bearer ${key}` } })
  const { data } = (await reply.json()) as { readonly data: readonly { readonly id: string }[] }
  return data.map(({ id }) => id)
}

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

  it('a gateway gives a call in another dialect to a node of the other gateway that speaks it', async () => {
    const events = [
      { type: 'response.created', sequence_number: 0, response: { id: 'r', output: [] } },
      {
        type: 'response.completed',
        sequence_number: 1,
        response: { id: 'r', output: [], usage: { input_tokens: 3, output_tokens: 1 } },
      },
    ].map((data) => `event: ${data.type}\ndata: ${JSON.stringify(data)}\n\n`)
    const backend = await startScriptedBackend(
      answerChatWith('a'),
      ['dialect-model'],
      0,
      async (request, response) => {
        let text = ''
        for await (const part of request.setEncoding('utf8')) text += part
        if (text === '{') response.writeHead(request.url === '/v1/responses' ? 400 : 404).end()
        else response.writeHead(200, { 'content-type': 'text/event-stream' }).end(events.join(''))
      },
    )
    const agent = await far.startAgent({ backendUrl: backend.url, models: ['dialect-model'] })
    await until('near knows the model', async () =>
      (await modelsAt(near)).includes('dialect-model'),
    )
    const post = (path: string) =>
      fetch(near.gateway.url + path, {
        method: 'POST',
        headers: {
          authorization: `Bearer ${near.gateway.key}`,
          'content-type': 'application/json',
        },
        body: JSON.stringify({ model: 'dialect-model', stream: true }),
      })
    expect(await (await post('/v1/responses')).text()).toBe(events.join(''))
    const refused = await post('/v1/messages')
    expect(refused.status).toBe(400)
    expect(await refused.text()).toContain('use /v1/chat/completions or /v1/responses')
    await agent.stop()
    await backend.stop()
  })
})
