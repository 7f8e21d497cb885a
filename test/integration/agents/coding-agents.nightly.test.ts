import { mkdir, mkdtemp, readFile, realpath, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import {
  type AgentTarget,
  GATEWAY_TARGET,
  PROXY_TARGET,
  type TargetKind,
} from '../../support/agents/agent-target.ts'
import { findLoopbackHindrance, LOOPBACK_ORIGIN } from '../../support/agents/loopback.ts'
import { installPackages } from '../../support/agents/npm-folder.ts'
import { needNo } from '../../support/needs.ts'
import { runCli } from '../../support/run-cli.ts'
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
let target: AgentTarget | null = null
/** The home of one agent, and the folder within in which it works. */
let home = ''
let work = ''

beforeAll(async () => {
  if (need.isMet) service = await useAffidavit()
})
afterAll(() => packages.remove())
beforeEach(async () => {
  home = await realpath(await mkdtemp(join(tmpdir(), 'affidavit-agent-')))
  work = join(home, 'work')
  await mkdir(work)
})
afterEach(async () => {
  await target?.close()
  target = null
  await rm(home, { recursive: true, force: true })
})

/** Opens what the agent of one test asks. */
async function open(kind: TargetKind): Promise<AgentTarget> {
  target = await kind.open(service, { name: `agent ${home}`, folder: home })
  return target
}

const MODEL = 'demo/task'
const fileIn = (name: string) => join(work, name)

/** Runs an agent with its prompt as input. */
async function runAgent(
  { run }: AgentTarget,
  program: string,
  words: readonly string[],
  options: { readonly prompt: string; readonly variables: Readonly<Record<string, string>> },
): Promise<string> {
  const { prompt, variables } = options
  const { code, stdout, stderr } = await run(
    [join(packages.folder, 'node_modules/.bin', program), ...words],
    { folder: work, input: prompt, variables: { HOME: home, ...variables } },
  )
  expect(code, stderr).toBe(0)
  return stdout
}

/** Checks what the agent's tools left in its folder, and that all of its calls verify. */
async function expectDone(asked: AgentTarget, dialect: string): Promise<void> {
  expect(await readFile(fileIn('a.txt'), 'utf8')).toBe('one two')
  expect(await readFile(fileIn('b.txt'), 'utf8')).toContain('7 a.txt')
  const calls = await asked.verifyCalls()
  expect(calls.length).toBeGreaterThanOrEqual(4)
  for (const call of calls) {
    expect(call.dialect).toBe(dialect)
    expect(call.request.body.stream).toBe(true)
  }
}

const TARGETS = [GATEWAY_TARGET, PROXY_TARGET]
const claudeOf = ({ anthropic }: TargetKind) => ({
  words: ['-p', '--model', MODEL, '--allowedTools', 'Bash Read Write Edit'],
  variables: { ANTHROPIC_BASE_URL: anthropic, ANTHROPIC_SMALL_FAST_MODEL: MODEL },
})

describe.skipIf(!need.isMet).each(TARGETS)(
  'coding agents at $name, without a network, with base URL and key alone',
  (kind) => {
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
      const asked = await open(kind)
      const settings = settingsFor(JSON.stringify(kind.openai)).flatMap((setting) => [
        '-c',
        setting,
      ])
      const unattended = ['--skip-git-repo-check', '--dangerously-bypass-approvals-and-sandbox']
      await runAgent(asked, 'codex', ['exec', ...unattended, '-m', MODEL, ...settings, '-'], {
        prompt:
          'First exec_command({"cmd":"printf one > a.txt"}), then exec_command({"cmd":"printf \' two\' >> a.txt"}), then exec_command({"cmd":"wc -c a.txt > b.txt"}).',
        variables: { OPENAI_API_KEY: asked.apiKey, CODEX_API_KEY: asked.apiKey },
      })
      await expectDone(asked, 'responses')
    })

    it.each(['ANTHROPIC_API_KEY', 'ANTHROPIC_AUTH_TOKEN'])(
      need.title('Claude Code writes, reads and edits files and runs a command with its key in %s'),
      async (variable) => {
        const asked = await open(kind)
        const { words, variables } = claudeOf(kind)
        const file_path = fileIn('a.txt')
        const calls = [
          `Write(${JSON.stringify({ file_path, content: 'one' })})`,
          `Read(${JSON.stringify({ file_path })})`,
          `Edit(${JSON.stringify({ file_path, old_string: 'one', new_string: 'one two', replace_all: false })})`,
          'Bash({"command":"wc -c a.txt > b.txt"})',
        ]
        const said = await runAgent(asked, 'claude', words, {
          prompt: `Make these calls: ${calls.join(', then ')}.`,
          variables: { ...variables, [variable]: asked.apiKey },
        })
        expect(said).toContain('[demonstration] The tool answered:')
        await expectDone(asked, 'messages')
      },
    )

    it.each([
      ['openai', '', 'responses'],
      ['anthropic', '/v1', 'messages'],
    ] as const)(
      need.title(
        'opencode writes, reads and edits files and runs a command through its provider %s',
      ),
      async (provider, suffix, dialect) => {
        const asked = await open(kind)
        const model = `${provider}/${MODEL}`
        const options = { baseURL: `${kind[provider]}${suffix}`, apiKey: asked.apiKey }
        const configuration = {
          small_model: model,
          provider: { [provider]: { options, models: { [MODEL]: {} } } },
        }
        const filePath = fileIn('a.txt')
        const calls = [
          `write(${JSON.stringify({ filePath, content: 'one' })})`,
          `read(${JSON.stringify({ filePath })})`,
          `edit(${JSON.stringify({ filePath, oldString: 'one', newString: 'one two' })})`,
          'bash({"command":"wc -c a.txt > b.txt","description":"counts"})',
        ]
        await runAgent(asked, 'opencode', ['run', '-m', model], {
          prompt: `Make these calls: ${calls.join(', then ')}.`,
          variables: { OPENCODE_CONFIG_CONTENT: JSON.stringify(configuration) },
        })
        await expectDone(asked, dialect)
      },
    )
  },
)

describe.skipIf(!need.isMet)('coding agents without a network', () => {
  it(need.title('a namespace reaches the service and nothing else'), async () => {
    const { run } = await open(GATEWAY_TARGET)
    const ask = async (url: string) => {
      const program = `process.exit(await fetch(${JSON.stringify(url)}).then((r) => (r.ok ? 0 : 1), () => 2))`
      const words = [process.execPath, '--input-type=module', '-e', program]
      return (await run(words, { folder: work })).code
    }
    expect(await ask(`${LOOPBACK_ORIGIN}/healthz`)).toBe(0)
    expect(await ask(`${service.url}/healthz`)).toBe(2)
    expect(await ask('http://192.0.2.1/')).toBe(2)
  })

  it(
    need.title('a session does not verify when Claude Code alters a call in its history'),
    async () => {
      const asked = await open(PROXY_TARGET)
      const { words, variables } = claudeOf(PROXY_TARGET)
      const file_path = fileIn('a.txt')
      const written = { file_path, content: 'one' }
      // Claude Code adds the default of `replace_all` to the call.
      const edited = { file_path, old_string: 'one', new_string: 'one two' }
      await runAgent(asked, 'claude', words, {
        prompt: `Make these calls: Write(${JSON.stringify(written)}), then Edit(${JSON.stringify(edited)}).`,
        variables: { ...variables, ANTHROPIC_API_KEY: asked.apiKey },
      })
      await asked.close()
      target = null
      const file = join(home, 'run.json')
      const { stdout } = await runCli(['verify', file, '--expect', service.expectFile])
      expect(stdout).toMatch(/^CONSISTENT: /)
      expect(stdout).toMatch(
        /answers in requests +item \d+ \(called Edit\) .* differs from call \d/,
      )
    },
  )
})
