import { readFile, writeFile } from 'node:fs/promises'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import type { Affidavit } from '../../support/affidavit.ts'
import { PROXY_TARGET } from '../../support/agents/agent-target.ts'
import {
  type AgentProgram,
  claudeAt,
  codexAt,
  opencodeAt,
  useCodingAgents,
} from '../../support/agents/coding-agents.ts'
import { copyPrompt, newWord } from '../../support/agents/model-turn.ts'
import { startScriptedProviders } from '../../support/agents/scripted-providers.ts'

/*
 * Each agent does a task of four calls with a model of each provider that speaks its dialect. The
 * providers stream as recordings of them do (test/support/agents/shapes).
 */

const agents = await useCodingAgents()
const { need, fileIn } = agents

let service: Affidavit

beforeAll(async () => {
  if (need.isMet) service = await startScriptedProviders()
})
afterAll(async () => {
  if (need.isMet) await service.stop()
})

type StartAgent = (options: { readonly model: string; readonly apiKey: string }) => AgentProgram
const { openai, anthropic } = PROXY_TARGET
const codex: StartAgent = (options) => codexAt(openai, options)
const claude: StartAgent = (options) => claudeAt(anthropic, options)
const chat: StartAgent = (options) => opencodeAt(openai, { ...options, provider: 'other' })
const messages: StartAgent = (options) =>
  opencodeAt(anthropic, { ...options, provider: 'anthropic' })
const responses: StartAgent = (options) => opencodeAt(openai, { ...options, provider: 'openai' })

describe.skipIf(!need.isMet)('coding agents through affidavit proxy', () => {
  it.each([
    ['Codex', 'xai', 'responses', codex],
    ['Codex', 'openrouter', 'responses', codex],
    ['Codex', 'lmstudio', 'responses', codex],
    ['Codex', 'vllm', 'responses', codex],
    ['Codex', 'vllm-gpt-oss', 'responses', codex],
    ['Claude Code', 'anthropic', 'messages', claude],
    ['Claude Code', 'openrouter', 'messages', claude],
    ['Claude Code', 'vllm', 'messages', claude],
    ['Claude Code', 'sglang', 'messages', claude],
    ['opencode', 'xai', 'chat', chat],
    ['opencode', 'openrouter', 'chat', chat],
    ['opencode', 'vllm', 'chat', chat],
    ['opencode', 'sglang', 'chat', chat],
    ['opencode', 'anthropic', 'messages', messages],
    ['opencode', 'lmstudio', 'responses', responses],
  ] as const)(
    need.title('%s copies a word between files with a model of %s through %s'),
    async (_, provider, dialect, start) => {
      const word = newWord()
      await writeFile(fileIn('in.txt'), word)
      const asked = await agents.open(service, PROXY_TARGET)
      const agent = start({ model: `${provider}/task`, apiKey: asked.apiKey })
      await agents.run(asked, agent, copyPrompt(fileIn('').replace(/\/$/, '')))
      expect(await readFile(fileIn('out.txt'), 'utf8')).toBe(word)
      expect(await readFile(fileIn('count.txt'), 'utf8')).toContain(`${word.length} out.txt`)
      const calls = await asked.verifyCalls()
      expect(calls.length).toBeGreaterThanOrEqual(4)
      for (const call of calls) expect(call.dialect).toBe(dialect)
    },
  )
})
