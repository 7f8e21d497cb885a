import { readFile } from 'node:fs/promises'
import { beforeAll, describe, expect, it } from 'vitest'
import {
  type AgentTarget,
  GATEWAY_TARGET,
  PROXY_TARGET,
  type TargetKind,
} from '../../support/agents/agent-target.ts'
import {
  claudeAt,
  codexAt,
  opencodeAt,
  useCodingAgents,
} from '../../support/agents/coding-agents.ts'
import { LOOPBACK_ORIGIN } from '../../support/agents/loopback.ts'
import { runCli } from '../../support/run-cli.ts'
import { type SharedAffidavit, useAffidavit } from '../../support/use-affidavit.ts'

const agents = await useCodingAgents()
const { need, fileIn } = agents

let service: SharedAffidavit

beforeAll(async () => {
  if (need.isMet) service = await useAffidavit()
})

const open = (kind: TargetKind) => agents.open(service, kind)

const MODEL = 'demo/task'
const promptFor = (calls: readonly string[]) => `Make these calls: ${calls.join(', then ')}.`

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

describe.skipIf(!need.isMet).each(TARGETS)(
  'coding agents at $name, without a network, with base URL and key alone',
  (kind) => {
    it.each([
      ['its own provider', [`openai_base_url=${JSON.stringify(kind.openai)}`]],
      ['a provider of the user', []],
    ])(need.title('Codex does a task with its shell through %s'), async (_, settings) => {
      const asked = await open(kind)
      const codex = codexAt(kind.openai, { model: MODEL, apiKey: asked.apiKey, settings })
      await agents.run(
        asked,
        codex,
        'First exec_command({"cmd":"printf one > a.txt"}), then exec_command({"cmd":"printf \' two\' >> a.txt"}), then exec_command({"cmd":"wc -c a.txt > b.txt"}).',
      )
      await expectDone(asked, 'responses')
    })

    it.each(['ANTHROPIC_API_KEY', 'ANTHROPIC_AUTH_TOKEN'])(
      need.title('Claude Code writes, reads and edits files and runs a command with its key in %s'),
      async (keyVariable) => {
        const asked = await open(kind)
        const { apiKey } = asked
        const claude = claudeAt(kind.anthropic, { model: MODEL, apiKey, keyVariable })
        const file_path = fileIn('a.txt')
        const calls = [
          `Write(${JSON.stringify({ file_path, content: 'one' })})`,
          `Read(${JSON.stringify({ file_path })})`,
          `Edit(${JSON.stringify({ file_path, old_string: 'one', new_string: 'one two', replace_all: false })})`,
          'Bash({"command":"wc -c a.txt > b.txt"})',
        ]
        const said = await agents.run(asked, claude, promptFor(calls))
        expect(said).toContain('[demonstration] The tool answered:')
        await expectDone(asked, 'messages')
      },
    )

    it.each([
      ['openai', 'responses'],
      ['anthropic', 'messages'],
    ] as const)(
      need.title(
        'opencode writes, reads and edits files and runs a command through its provider %s',
      ),
      async (provider, dialect) => {
        const asked = await open(kind)
        const { apiKey } = asked
        const opencode = opencodeAt(kind[provider], { model: MODEL, apiKey, provider })
        const filePath = fileIn('a.txt')
        const calls = [
          `write(${JSON.stringify({ filePath, content: 'one' })})`,
          `read(${JSON.stringify({ filePath })})`,
          `edit(${JSON.stringify({ filePath, oldString: 'one', newString: 'one two' })})`,
          'bash({"command":"wc -c a.txt > b.txt","description":"counts"})',
        ]
        await agents.run(asked, opencode, promptFor(calls))
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
      return (await run(words, { folder: fileIn('') })).code
    }
    expect(await ask(`${LOOPBACK_ORIGIN}/healthz`)).toBe(0)
    expect(await ask(`${service.url}/healthz`)).toBe(2)
    expect(await ask('http://192.0.2.1/')).toBe(2)
  })

  it(
    need.title('a session does not verify when Claude Code alters a call in its history'),
    async () => {
      const asked = await open(PROXY_TARGET)
      const { apiKey } = asked
      const claude = claudeAt(PROXY_TARGET.anthropic, { model: MODEL, apiKey })
      const file_path = fileIn('a.txt')
      const written = { file_path, content: 'one' }
      // Claude Code adds the default of `replace_all` to the call.
      const edited = { file_path, old_string: 'one', new_string: 'one two' }
      await agents.run(
        asked,
        claude,
        `Make these calls: Write(${JSON.stringify(written)}), then Edit(${JSON.stringify(edited)}).`,
      )
      await agents.close()
      const file = fileIn('../run.json')
      const { stdout } = await runCli(['verify', file, '--policy', service.policyFile])
      expect(stdout).toMatch(/^INCOMPLETE: /)
      expect(stdout).toMatch(
        /answers in requests +item \d+ \(called Edit\) .* differs from call \d/,
      )
    },
  )
})
