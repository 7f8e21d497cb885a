import { existsSync, mkdtempSync, readFileSync } from 'node:fs'
import { rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import Anthropic from '@anthropic-ai/sdk'
import OpenAI from 'openai'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { readEvidenceLines } from '#attestation/evidence/evidence-lines.ts'
import { connect } from '#client/index.ts'
import { type ProxiedCall, serveProxy } from '#src/cli/proxy/serve-proxy.ts'
import {
  runMessagesTask,
  runResponsesTask,
  runThreaded,
  TASK_ANSWER,
} from '../support/agent-task.ts'
import { readExpectedService } from '../support/expected-service.ts'
import { startProxyProgram } from '../support/proxy-program.ts'
import { sendBody } from '../support/register-node.ts'
import { runCli } from '../support/run-cli.ts'
import { type SharedAffidavit, useAffidavit } from '../support/use-affidavit.ts'

const KEYS_PATH = '/v1/dashboard/keys'

let service: SharedAffidavit
const folder = mkdtempSync(join(tmpdir(), 'affidavit-proxy-'))
beforeAll(async () => {
  service = await useAffidavit()
})
afterAll(() => rm(folder, { recursive: true }))

/** Starts the program with these words, and the official SDKs at its address. */
async function startProgram(more: readonly string[]) {
  const program = await startProxyProgram(service, more)
  const { baseURL } = program
  const { apiKey } = service
  return {
    ...program,
    openai: new OpenAI({ baseURL, apiKey, maxRetries: 0 }),
    anthropic: new Anthropic({
      baseURL: baseURL.replace(/\/v1$/, ''),
      apiKey,
      authToken: null,
      maxRetries: 0,
    }),
  }
}

const verify = (file: string) => runCli(['verify', file, '--policy', service.policyFile])

describe('affidavit proxy --session', () => {
  it('a run of both dialects through the proxy is one session that verifies, also after a crash', async () => {
    const file = join(folder, 'run.json')
    const crashed = await startProgram(['--session', file])
    expect(await runResponsesTask(crashed.openai)).toContain(TASK_ANSWER)
    await crashed.stop('SIGKILL')
    const program = await startProgram(['--session', file])
    expect(await runMessagesTask(program.anthropic)).toContain(TASK_ANSWER)
    const last = { headers: { 'affidavit-last': 'true' } }
    const messages = [{ role: 'user' as const, content: 'Done' }]
    await program.openai.chat.completions.create({ model: 'demo/echo', messages }, last)
    const late = program.openai.chat.completions.create({ model: 'demo/echo', messages })
    await expect(late).rejects.toMatchObject({ status: 400 })
    const { code, output } = await program.stop()
    expect(code).toBe(0)
    expect(output).toContain('4 checked, 0 refused, 1 errors, 0 left')
    const verified = await verify(file)
    expect(verified.stdout).toMatch(/^VERIFIED: /)
    expect(verified.stdout).toContain('These are 7 calls of one session')
    expect(verified.code).toBe(0)
    expect(readEvidenceLines(readFileSync(file))).toHaveLength(7)
    expect(existsSync(`${file}.calls`)).toBe(false)
    const proxy = ['proxy', '--url', service.url, '--policy', service.policyFile, '--port', '0']
    const again = await runCli(proxy.concat('--session', file))
    expect(again.stderr).toContain('exists: name a new file for the session')
  })

  it('a session whose proxy crashed after the last call takes no call, and is completed by any request', async () => {
    const file = join(folder, 'ended.json')
    const crashed = await startProgram(['--session', file])
    const messages = [{ role: 'user' as const, content: 'Done' }]
    const last = { headers: { 'affidavit-last': 'true' } }
    await crashed.openai.chat.completions.create({ model: 'demo/echo', messages }, last)
    await crashed.stop('SIGKILL')
    const program = await startProgram(['--session', file])
    // The gateway lists models without a key, and refuses evidence to a key that it does not know.
    await program.openai.withOptions({ apiKey: 'afd_invalid' }).models.list()
    const late = program.openai.chat.completions.create({ model: 'demo/echo', messages })
    await expect(late).rejects.toMatchObject({
      status: 400,
      message: expect.stringContaining('expected no call after the last of a session'),
    })
    await program.openai.models.list()
    const { code, output } = await program.stop()
    expect(code).toBe(0)
    expect(output).toContain('This session had its last call')
    const verified = await verify(file)
    expect(verified.stdout).toMatch(/^VERIFIED: /)
    expect(readEvidenceLines(readFileSync(file))).toHaveLength(1)
    expect(existsSync(`${file}.calls`)).toBe(false)
  })

  it('a program with another key neither adds a call to a session, nor ends it, nor fetches its evidence', async () => {
    const file = join(folder, 'owned.json')
    const order = { name: 'another program' }
    const operator = { url: service.url, key: service.apiKey }
    const created = await sendBody(operator, 'POST', KEYS_PATH, order)
    const { key: apiKey } = (await created.json()) as { readonly key: string }
    const messages = [{ role: 'user' as const, content: 'Hello' }]
    const request = { model: 'demo/echo', messages }
    const last = { headers: { 'affidavit-last': 'true' } }
    const askBy = async (openai: OpenAI, more = {}) =>
      (await openai.chat.completions.create(request, more).asResponse()).headers.get(
        'affidavit-session',
      )

    const begun = await startProgram(['--session', file, '--token'])
    const [, secret = ''] = new URL(begun.baseURL).pathname.split('/')
    expect(secret).toMatch(/^[\w-]{22}$/)
    expect((await fetch(`${new URL(begun.baseURL).origin}/v1/models`)).status).toBe(404)
    const other = (openai: OpenAI) => openai.withOptions({ apiKey })
    await expect(
      begun.openai.withOptions({ apiKey: 'afd_invalid' }).chat.completions.create(request),
    ).rejects.toMatchObject({ status: 401 })
    expect(await askBy(begun.openai)).toBe(null)
    expect(await askBy(other(begun.openai), last)).toBe('outside')
    expect(await askBy(begun.openai)).toBe(null)
    const { output } = await begun.stop('SIGKILL')
    expect(output.split(secret)).toHaveLength(2)
    expect(output).toMatch(/checked .* outside of the session/)

    const again = await startProgram(['--session', file])
    expect(await askBy(other(again.openai), last)).toBe('outside')
    await again.openai.withOptions({ apiKey: 'afd_invalid' }).models.list()
    expect(await askBy(again.openai, last)).toBe(null)
    await again.openai.withOptions({ apiKey: 'afd_invalid' }).models.list()
    expect((await again.stop()).code).toBe(0)
    const verified = await verify(file)
    expect(verified.stdout).toMatch(/^VERIFIED: /)
    expect(readEvidenceLines(readFileSync(file))).toHaveLength(3)
    expect(existsSync(`${file}.calls`)).toBe(false)
  })

  it.each([
    ['not sent by a proxy that encrypts', true],
    ['sent once by a proxy that does not encrypt', false],
  ])('a request to count tokens is %s, and calls go on', async (_, encrypt) => {
    const { connect: expected } = await readExpectedService(service)
    const sent: string[] = []
    const affidavit = await connect({
      url: service.url,
      ...expected,
      encrypt,
      fetch(input, init) {
        if (init?.body instanceof Uint8Array) sent.push(Buffer.from(init.body).toString())
        return fetch(input, init)
      },
    })
    const verdicts: string[] = []
    const onCall = ({ verdict, detail }: ProxiedCall) => void verdicts.push(`${verdict} ${detail}`)
    const proxy = await serveProxy({ affidavit, port: 0, onCall })
    const { apiKey } = service
    const client = { baseURL: proxy.baseURL.replace(/\/v1$/, ''), apiKey, authToken: null }
    const messages = [{ role: 'user' as const, content: 'Hello there' }]
    const request = { model: 'demo/echo', messages }
    const counted = new Anthropic(client).messages.countTokens(request)
    if (encrypt)
      await expect(counted).rejects.toMatchObject({
        status: 404,
        message: expect.stringContaining('the gateway would read the prompt'),
      })
    else expect(await counted).toEqual({ input_tokens: expect.any(Number) })
    expect(sent).toEqual(encrypt ? [] : [JSON.stringify(request)])
    expect(await runThreaded(client, 'hello')).toContain('hello')
    await proxy.close()
    const count = encrypt ? ['error status 404'] : []
    expect(verdicts).toEqual([...count, 'error status 400', 'checked null'])
  })
})
