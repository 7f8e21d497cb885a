import { spawn } from 'node:child_process'
import { existsSync, mkdtempSync, readFileSync } from 'node:fs'
import { rm } from 'node:fs/promises'
import { Agent, request as httpRequest } from 'node:http'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import Anthropic from '@anthropic-ai/sdk'
import OpenAI from 'openai'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { runMessagesTask, runResponsesTask, TASK_ANSWER } from '../support/agent-task.ts'
import { runCli } from '../support/run-cli.ts'
import { until } from '../support/until.ts'
import { type SharedAffidavit, useAffidavit } from '../support/use-affidavit.ts'

const CLI = join(import.meta.dirname, '../../src/cli/main.ts')

let service: SharedAffidavit
const folder = mkdtempSync(join(tmpdir(), 'affidavit-proxy-'))
beforeAll(async () => {
  service = await useAffidavit()
})
afterAll(() => rm(folder, { recursive: true }))

/** Starts the program with a session file, and waits until it serves. */
async function startProgram(file: string) {
  const args = ['proxy', '--url', service.url, '--expect', service.expectFile, '--port', '0']
  const child = spawn(process.execPath, [CLI, ...args, '--session', file])
  let output = ''
  for (const stream of [child.stdout, child.stderr])
    stream.setEncoding('utf8').on('data', (text: string) => (output += text))
  const exited = new Promise<number | null>((resolve) => child.once('exit', resolve))
  await until('it serves', () => /Checked answers at (\S+),/.test(output), 30_000)
  const [, baseURL = ''] = /Checked answers at (\S+),/.exec(output) ?? []
  const { apiKey } = service
  const stop = async (signal: NodeJS.Signals = 'SIGTERM') => {
    child.kill(signal)
    return { code: await exited, output }
  }
  return {
    baseURL,
    stop,
    openai: new OpenAI({ baseURL, apiKey, maxRetries: 0 }),
    anthropic: new Anthropic({
      baseURL: baseURL.replace(/\/v1$/, ''),
      apiKey,
      authToken: null,
      maxRetries: 0,
    }),
  }
}

const verify = (file: string) => runCli(['verify', file, '--expect', service.expectFile])

describe('affidavit proxy --session', () => {
  it('a run of both dialects through the proxy is one session that verifies, also after a crash', async () => {
    const file = join(folder, 'run.json')
    const crashed = await startProgram(file)
    expect(await runResponsesTask(crashed.openai)).toContain(TASK_ANSWER)
    await crashed.stop('SIGKILL')
    const program = await startProgram(file)
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
    expect(JSON.parse(readFileSync(file, 'utf8')).calls).toHaveLength(7)
    expect(existsSync(`${file}.calls`)).toBe(false)
    const proxy = ['proxy', '--url', service.url, '--expect', service.expectFile, '--port', '0']
    const again = await runCli(proxy.concat('--session', file))
    expect(again.stderr).toContain('exists: name a new file for the session')
  })

  it('the proxy answers what agents ask beside their calls', async () => {
    const { baseURL, stop } = await startProgram(join(folder, 'unused.json'))
    const root = baseURL.replace(/\/v1$/, '')
    expect((await fetch(`${root}/api/hello`, { method: 'HEAD' })).status).toBe(200)
    const headers = { 'x-api-key': service.apiKey, 'anthropic-version': '2023-06-01' }
    const list = await (await fetch(`${baseURL}/models?limit=1000`, { headers })).json()
    expect(list).toMatchObject({ data: expect.any(Array), has_more: false })
    const count = await fetch(`${baseURL}/messages/count_tokens`, { method: 'POST', headers })
    expect(count.status).toBe(404)
    const bad = await fetch(`${baseURL}/messages?beta=true`, { method: 'POST', headers, body: '[' })
    expect(bad.status).toBe(400)
    expect(await bad.json()).toMatchObject({
      type: 'error',
      error: { type: 'invalid_request_error', code: 'invalid_request' },
    })
    const agent = new Agent()
    const status = await new Promise((resolve, reject) => {
      const upgrade = { connection: 'upgrade', upgrade: 'websocket' }
      httpRequest(`${baseURL}/responses`, { agent, headers: upgrade })
        .on('response', ({ statusCode }) => resolve(statusCode))
        .on('error', reject)
        .end()
    })
    agent.destroy()
    expect(status).toBe(426)
    expect((await stop()).code).toBe(0)
  })
})
