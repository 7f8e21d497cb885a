import { mkdir, mkdtemp, realpath, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, afterEach, beforeEach, expect } from 'vitest'
import { type Need, needNo } from '../needs.ts'
import type { SharedAffidavit } from '../use-affidavit.ts'
import type { AgentTarget, TargetKind } from './agent-target.ts'
import { findLoopbackHindrance } from './loopback.ts'
import { installPackages, type NpmFolder } from './npm-folder.ts'

const AGENTS = {
  '@openai/codex': '0.171.0',
  '@anthropic-ai/claude-code': '2.1.332',
  'opencode-ai': '1.18.33',
}

/** A program of an agent, with its words and variables. */
export type AgentProgram = {
  readonly program: string
  readonly words: readonly string[]
  readonly variables: Readonly<Record<string, string>>
}

/** Codex, which speaks Responses. `settings`: other than a provider of the user at `base`. */
export function codexAt(
  base: string,
  { model, apiKey, settings = [] }: AgentModel & { readonly settings?: readonly string[] },
): AgentProgram {
  const name = 'model_providers.other'
  const provider = [
    'model_provider=other',
    `${name}={name="Other",base_url=${JSON.stringify(base)},env_key="OPENAI_API_KEY",wire_api="responses"}`,
  ]
  const chosen = settings.length > 0 ? settings : provider
  return {
    program: 'codex',
    words: [
      'exec',
      '--skip-git-repo-check',
      '--dangerously-bypass-approvals-and-sandbox',
      '-m',
      model,
      ...chosen.flatMap((setting) => ['-c', setting]),
      '-',
    ],
    variables: { OPENAI_API_KEY: apiKey, CODEX_API_KEY: apiKey },
  }
}

/** Claude Code, which speaks Messages. `keyVariable`: which variable has its key. */
export function claudeAt(
  base: string,
  {
    model,
    apiKey,
    keyVariable = 'ANTHROPIC_API_KEY',
  }: AgentModel & { readonly keyVariable?: string },
): AgentProgram {
  return {
    program: 'claude',
    words: ['-p', '--model', model, '--allowedTools', 'Bash Read Write Edit'],
    variables: {
      ANTHROPIC_BASE_URL: base,
      ANTHROPIC_SMALL_FAST_MODEL: model,
      [keyVariable]: apiKey,
    },
  }
}

/** opencode: `openai` speaks Responses, `anthropic` Messages, `other` chat completions. */
export function opencodeAt(
  base: string,
  { model, apiKey, provider }: AgentModel & { readonly provider: 'openai' | 'anthropic' | 'other' },
): AgentProgram {
  const baseURL = provider === 'anthropic' ? `${base}/v1` : base
  const npm = provider === 'other' ? { npm: '@ai-sdk/openai-compatible' } : {}
  const entry = { ...npm, options: { baseURL, apiKey }, models: { [model]: {} } }
  const configuration = {
    small_model: `${provider}/${model}`,
    provider: { [provider]: entry },
  }
  return {
    program: 'opencode',
    words: ['run', '-m', `${provider}/${model}`],
    variables: { OPENCODE_CONFIG_CONTENT: JSON.stringify(configuration) },
  }
}

type AgentModel = { readonly model: string; readonly apiKey: string }

/** The agents of a file, and for each of its tests a home and a target. */
export type CodingAgents = {
  readonly need: Need
  /** The path of a file in the folder in which the agent works. */
  fileIn(name: string): string
  /** Opens what the agent of one test asks. It is closed after the test, or by `close`. */
  open(service: SharedAffidavit, kind: TargetKind): Promise<AgentTarget>
  close(): Promise<void>
  /** Runs an agent with its prompt as input, and returns what it said. Fails if the agent did. */
  run(target: AgentTarget, agent: AgentProgram, prompt: string): Promise<string>
}

/** Installs the agents of the registry, and removes them after the file's tests. */
export async function useCodingAgents(): Promise<CodingAgents> {
  const installed = findLoopbackHindrance() ?? (await installPackages(AGENTS))
  const need = needNo(typeof installed === 'string' ? installed : null)
  const packages: NpmFolder =
    typeof installed === 'string' ? { folder: '', remove: async () => {} } : installed
  let target: AgentTarget | null = null
  let home = ''
  const fileIn = (name: string) => join(home, 'work', name)
  const close = async () => {
    await target?.close()
    target = null
  }
  beforeEach(async () => {
    home = await realpath(await mkdtemp(join(tmpdir(), 'affidavit-agent-')))
    await mkdir(fileIn(''))
  })
  afterEach(async () => {
    await close()
    await rm(home, { recursive: true, force: true })
  })
  afterAll(() => packages.remove())
  return {
    need,
    fileIn,
    close,
    async open(service, kind) {
      target = await kind.open(service, { name: `agent ${home}`, folder: home })
      return target
    },
    async run({ run }, { program, words, variables }, prompt) {
      const path = join(packages.folder, 'node_modules/.bin', program)
      const { code, stdout, stderr } = await run([path, ...words], {
        folder: fileIn(''),
        input: prompt,
        variables: { HOME: home, ...variables },
      })
      expect(code, stderr).toBe(0)
      return stdout
    },
  }
}
