import { mkdir, mkdtemp, readFile, realpath, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { type AgentAccount, openAgentAccount } from '../../support/agents/agent-account.ts'
import {
  findLoopbackHindrance,
  LOOPBACK_ORIGIN,
  type Loopback,
  openLoopback,
} from '../../support/agents/loopback.ts'
import { installPackages } from '../../support/agents/npm-folder.ts'
import { needNo } from '../../support/needs.ts'
import { type SharedAffidavit, useAffidavit } from '../../support/use-affidavit.ts'

const hindrance = findLoopbackHindrance()
const installed =
  hindrance ??
  (await installPackages({
    '@openai/codex': '0.171.0',
    '@anthropic-ai/claude-code': '2.1.332',
    'opencode-ai': '1.18.33',
  }))
const need = needNo(typeof installed === 'string' ? installed : null)
const packages = typeof installed === 'string' ? { folder: '', remove: async () => {} } : installed

let service: SharedAffidavit
let loopback: Loopback
/** The home of one agent, and the folder within in which it works. */
let home = ''
let work = ''

beforeAll(async () => {
  if (!need.isMet) return
  service = await useAffidavit()
  loopback = await openLoopback(service.url)
})
afterAll(async () => {
  await loopback?.close()
  await packages.remove()
})
beforeEach(async () => {
  home = await realpath(await mkdtemp(join(tmpdir(), 'affidavit-agent-')))
  work = join(home, 'work')
  await mkdir(work)
})
afterEach(() => rm(home, { recursive: true, force: true }))

const MODEL = 'demo/task'
const OPENAI = `${LOOPBACK_ORIGIN}/v1/verified`
const ANTHROPIC = `${LOOPBACK_ORIGIN}/v1/verified/anthropic`
const fileIn = (name: string) => join(work, name)

/** Runs an agent with its prompt as input. */
async function runAgent(
  program: string,
  words: readonly string[],
  options: { readonly prompt: string; readonly variables: Readonly<Record<string, string>> },
): Promise<string> {
  const { prompt, variables } = options
  const { code, stdout, stderr } = await loopback.run(
    [join(packages.folder, 'node_modules/.bin', program), ...words],
    { folder: work, input: prompt, variables: { HOME: home, ...variables } },
  )
  expect(code, stderr).toBe(0)
  return stdout
}

/** Checks what the agent's tools left in its folder, and that all of its calls verify. */
async function expectDone(account: AgentAccount, dialect: string): Promise<void> {
  expect(await readFile(fileIn('a.txt'), 'utf8')).toBe('one two')
  expect(await readFile(fileIn('b.txt'), 'utf8')).toContain('7 a.txt')
  const calls = await account.verifyCalls()
  expect(calls.length).toBeGreaterThanOrEqual(4)
  for (const call of calls) {
    expect(call.dialect).toBe(dialect)
    expect(call.request.body.stream).toBe(true)
  }
}

describe.skipIf(!need.isMet)('coding agents without a network, with base URL and key alone', () => {
  it(need.title('a namespace reaches the service and nothing else'), async () => {
    const ask = async (url: string) => {
      const program = `process.exit(await fetch(${JSON.stringify(url)}).then((r) => (r.ok ? 0 : 1), () => 2))`
      const words = [process.execPath, '--input-type=module', '-e', program]
      return (await loopback.run(words, { folder: work })).code
    }
    expect(await ask(`${LOOPBACK_ORIGIN}/healthz`)).toBe(0)
    expect(await ask(`${service.url}/healthz`)).toBe(2)
    expect(await ask('http://192.0.2.1/')).toBe(2)
  })

  it.each([
    ['its own provider', (base: string) => [`openai_base_url=${base}`]],
    [
      'a provider of the user',
      (base: string) => [
        'model_provider=other',
        `model_providers.other={name="Other",base_url=${base},env_key="OPENAI_API_KEY",wire_api="responses"}`,
      ],
    ],
  ])(need.title('Codex does a task with its shell through %s'), async (_, settingsFor) => {
    const account = await openAgentAccount(service, `codex ${home}`)
    const settings = settingsFor(JSON.stringify(OPENAI)).flatMap((setting) => ['-c', setting])
    const unattended = ['--skip-git-repo-check', '--dangerously-bypass-approvals-and-sandbox']
    await runAgent('codex', ['exec', ...unattended, '-m', MODEL, ...settings, '-'], {
      prompt:
        'First exec_command({"cmd":"printf one > a.txt"}), then exec_command({"cmd":"printf \' two\' >> a.txt"}), then exec_command({"cmd":"wc -c a.txt > b.txt"}).',
      variables: { OPENAI_API_KEY: account.apiKey, CODEX_API_KEY: account.apiKey },
    })
    await expectDone(account, 'responses')
  })

  const CLAUDE = {
    words: ['-p', '--model', MODEL, '--allowedTools', 'Bash Read Write Edit'],
    variables: { ANTHROPIC_BASE_URL: ANTHROPIC, ANTHROPIC_SMALL_FAST_MODEL: MODEL },
  }

  it.each(['ANTHROPIC_API_KEY', 'ANTHROPIC_AUTH_TOKEN'])(
    need.title('Claude Code writes, reads and edits files and runs a command with its key in %s'),
    async (variable) => {
      const account = await openAgentAccount(service, `claude ${home}`)
      const file_path = fileIn('a.txt')
      const calls = [
        `Write(${JSON.stringify({ file_path, content: 'one' })})`,
        `Read(${JSON.stringify({ file_path })})`,
        `Edit(${JSON.stringify({ file_path, old_string: 'one', new_string: 'one two' })})`,
        'Bash({"command":"wc -c a.txt > b.txt"})',
      ]
      const said = await runAgent('claude', CLAUDE.words, {
        prompt: `Make these calls: ${calls.join(', then ')}.`,
        variables: { ...CLAUDE.variables, [variable]: account.apiKey },
      })
      expect(said).toContain('[demonstration] The tool answered:')
      await expectDone(account, 'messages')
    },
  )

  it(need.title('Claude Code counts the tokens of its context, without records'), async () => {
    const account = await openAgentAccount(service, `context ${home}`)
    const said = await runAgent('claude', CLAUDE.words, {
      prompt: '/context',
      variables: { ...CLAUDE.variables, ANTHROPIC_API_KEY: account.apiKey },
    })
    expect(said).toContain('Context Usage')
    const used = async () => {
      const headers = { authorization: `Bearer ${account.apiKey}` }
      const reply = await fetch(`${service.url}/v1/dashboard/usage`, { headers })
      return (await reply.json()) as { readonly requests: number; readonly tokens: number }
    }
    await expect.poll(async () => (await used()).requests).toBeGreaterThan(10)
    expect((await used()).tokens).toBe(0)
    expect(await account.verifyCalls()).toEqual([])
  })

  it.each([
    ['openai', OPENAI, 'responses'],
    ['anthropic', `${ANTHROPIC}/v1`, 'messages'],
  ])(
    need.title('opencode writes, reads and edits files and runs a command through its provider %s'),
    async (provider, baseURL, dialect) => {
      const account = await openAgentAccount(service, `opencode ${home}`)
      const model = `${provider}/${MODEL}`
      const configuration = {
        small_model: model,
        provider: {
          [provider]: { options: { baseURL, apiKey: account.apiKey }, models: { [MODEL]: {} } },
        },
      }
      const filePath = fileIn('a.txt')
      const calls = [
        `write(${JSON.stringify({ filePath, content: 'one' })})`,
        `read(${JSON.stringify({ filePath })})`,
        `edit(${JSON.stringify({ filePath, oldString: 'one', newString: 'one two' })})`,
        'bash({"command":"wc -c a.txt > b.txt","description":"counts"})',
      ]
      await runAgent('opencode', ['run', '-m', model], {
        prompt: `Make these calls: ${calls.join(', then ')}.`,
        variables: { OPENCODE_CONFIG_CONTENT: JSON.stringify(configuration) },
      })
      await expectDone(account, dialect)
    },
  )
})
