import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import Anthropic from '@anthropic-ai/sdk'
import OpenAI from 'openai'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { type Affidavit, type CallSession, type ConnectOptions, connect } from '#client/index.ts'
import { runMessagesTask, runResponsesTask, TASK_ANSWER } from '../support/agent-task.ts'
import { readExpectedService } from '../support/expected-service.ts'
import { runCli } from '../support/run-cli.ts'
import { type SharedAffidavit, useAffidavit } from '../support/use-affidavit.ts'

let service: SharedAffidavit
let trusted: Pick<ConnectOptions, 'url' | 'apiKey' | 'policy'>
let folder: string
beforeAll(async () => {
  service = await useAffidavit()
  const { connect: expected } = await readExpectedService(service)
  trusted = { url: service.url, apiKey: service.apiKey, ...expected }
  folder = await mkdtemp(join(tmpdir(), 'affidavit-dialects-'))
})
afterAll(() => rm(folder, { recursive: true, force: true }))

const openAiOf = ({ baseURL }: Affidavit, { fetch }: Pick<CallSession, 'fetch'>) =>
  new OpenAI({ baseURL, apiKey: service.apiKey, fetch, maxRetries: 0 })
const anthropicOf = (
  { anthropicBaseURL: baseURL }: Affidavit,
  { fetch }: Pick<CallSession, 'fetch'>,
) => new Anthropic({ baseURL, apiKey: service.apiKey, authToken: null, fetch, maxRetries: 0 })

/** A call that ends a session. */
const CLOSING = {
  Responses: { path: '/responses', body: { model: 'demo/echo', input: 'Done' } },
  Messages: {
    path: '/v1/messages',
    body: { model: 'demo/echo', max_tokens: 9, messages: [{ role: 'user', content: 'Done' }] },
  },
} as const

let files = 0
/** Checks a file as its receiver does, offline. */
async function verify(text: string, words: readonly string[] = []) {
  const file = join(folder, `${++files}.json`)
  await writeFile(file, text)
  return await runCli(['verify', file, '--policy', service.policyFile, ...words])
}

for (const encrypt of [false, true])
  describe(`the client, ${encrypt ? 'encrypted' : 'not encrypted'}`, () => {
    let affidavit: Affidavit
    beforeAll(async () => {
      affidavit = await connect({ ...trusted, encrypt })
    })

    it('a whole response and a whole message are checked, and their proofs verify', async () => {
      const response = await openAiOf(affidavit, affidavit).responses.create({
        model: 'demo/echo',
        input: 'Hello',
      })
      expect(response.output_text).toContain('Hello')
      const message = await anthropicOf(affidavit, affidavit).messages.create({
        model: 'demo/echo',
        max_tokens: 100,
        messages: [{ role: 'user', content: 'Hello' }],
      })
      expect(JSON.stringify(message.content)).toContain('Hello')
      const made = [...affidavit.proofs].slice(-2)
      expect(made.map(({ receipt }) => receipt)).toMatchObject([
        { dialect: 'responses', encrypted: encrypt, headers: {}, credential: { demanded: true } },
        { dialect: 'messages', encrypted: encrypt, credential: { demanded: true } },
      ])
      expect(made[1]?.receipt).toHaveProperty(['headers', 'anthropic-version'])
      for (const proof of made) {
        expect(await verify(proof.save())).toMatchObject({ code: 3, stderr: '' })
        const { save } = await affidavit.anchored(proof)
        expect((await verify(save(), [])).code).toBe(0)
      }
    })

    it.each([
      ['Responses', runResponsesTask, openAiOf],
      ['Messages', runMessagesTask, anthropicOf],
    ] as const)(
      'a task of several tool calls over %s is a session that verifies offline',
      async (dialect, run, clientOf) => {
        const session = affidavit.startSession()
        const client = clientOf(affidavit, session)
        expect(await run(client as never)).toContain(TASK_ANSWER)
        expect(session.proofs.map(({ answer }) => answer.kind)).toEqual([
          'events',
          'events',
          'events',
        ])
        const text = await session.save()
        const open = await verify(text)
        expect(open).toMatchObject({ code: 3, stderr: '' })
        expect(open.stdout).toContain('signed end')
        // A closing call states that no call follows.
        await client.post(CLOSING[dialect].path, {
          body: CLOSING[dialect].body,
          headers: { 'affidavit-last': 'true' },
        })
        const closed = await session.save()
        const { code, stdout, stderr } = await verify(closed, [])
        expect([code, stderr]).toEqual([0, ''])
        expect(stdout).toContain('It builds on the answer of call 1.')
        const [first = '', second = '', third = ''] = closed.trimEnd().split('\n')
        const altered = JSON.parse(second) as { record: { response: object } }
        altered.record.response = { ...altered.record.response, status: 'incomplete' }
        for (const changed of [
          [first, third],
          [first, JSON.stringify(altered), third],
        ]) {
          const result = await verify(changed.join('\n'))
          expect(result.stdout).toMatch(/^INVALID/)
          expect(result.code).toBe(1)
        }
      },
    )
  })
