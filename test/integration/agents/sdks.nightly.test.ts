import { cp, mkdtemp, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { GATEWAY_TARGET, PROXY_TARGET } from '../../support/agents/agent-target.ts'
import { findLoopbackHindrance } from '../../support/agents/loopback.ts'
import { installPackages } from '../../support/agents/npm-folder.ts'
import { needNo } from '../../support/needs.ts'
import { type SharedAffidavit, useAffidavit } from '../../support/use-affidavit.ts'

const hindrance = findLoopbackHindrance()
const installed =
  hindrance ??
  (await installPackages({
    openai5: 'npm:openai@5.23.2',
    openai6: 'npm:openai@6.49.0',
    openai7: 'npm:openai@7.57.0',
    // The agents, ai and LangChain use openai itself.
    openai: '7.57.0',
    '@openai/agents': '0.20.0',
    anthropic0: 'npm:@anthropic-ai/sdk@0.137.0',
    anthropic1: 'npm:@anthropic-ai/sdk@1.14.0',
    ai: '7.0.173',
    '@ai-sdk/openai': '4.0.118',
    '@ai-sdk/anthropic': '4.0.105',
    '@langchain/core': '1.4.0',
    '@langchain/openai': '1.6.0',
    '@langchain/anthropic': '1.5.11',
    zod: '4.6.7',
  }))
const need = needNo(typeof installed === 'string' ? installed : null)
const packages = typeof installed === 'string' ? { folder: '', remove: async () => {} } : installed

let service: SharedAffidavit

beforeAll(async () => {
  if (!need.isMet) return
  service = await useAffidavit()
  await cp(join(import.meta.dirname, 'programs'), packages.folder, { recursive: true })
})
afterAll(() => packages.remove())

/** A program of `programs/`, the ways in which it does its task, and its calls of the gateway. */
type Row = {
  readonly sdk: string
  readonly words: readonly string[]
  readonly ways: readonly string[]
  /** What follows the base URL of the official package of Anthropic. Default: nothing. */
  readonly anthropicSuffix?: string
  readonly dialect: 'responses' | 'messages'
  /** Calls beside the four of each way. */
  readonly more?: number
}

const BOTH = ['whole', 'streamed']
const openai = (major: number): Row => ({
  sdk: `openai ${major}`,
  words: ['openai.mjs', `openai${major}`],
  ways: [...BOTH, 'helper', 'parse'],
  dialect: 'responses',
  more: 1,
})
const anthropic = (major: number): Row => ({
  sdk: `@anthropic-ai/sdk ${major}`,
  words: ['anthropic.mjs', `anthropic${major}`],
  ways: [...BOTH, 'runner', 'runnerStreamed'],
  dialect: 'messages',
})
const ROWS: readonly Row[] = [
  openai(5),
  openai(6),
  openai(7),
  { sdk: '@openai/agents', words: ['openai-agents.mjs'], ways: BOTH, dialect: 'responses' },
  anthropic(0),
  anthropic(1),
  { sdk: 'ai with @ai-sdk/openai', words: ['ai.mjs', 'openai'], ways: BOTH, dialect: 'responses' },
  {
    sdk: 'ai with @ai-sdk/openai and store: false',
    words: ['ai.mjs', 'openai', '{"store":false,"reasoningEffort":"low"}'],
    ways: BOTH,
    dialect: 'responses',
  },
  {
    sdk: 'ai with @ai-sdk/anthropic',
    words: ['ai.mjs', 'anthropic'],
    ways: BOTH,
    anthropicSuffix: '/v1',
    dialect: 'messages',
  },
  {
    sdk: '@langchain/openai',
    words: ['langchain.mjs', 'openai'],
    ways: BOTH,
    dialect: 'responses',
  },
  {
    sdk: '@langchain/anthropic',
    words: ['langchain.mjs', 'anthropic'],
    ways: BOTH,
    dialect: 'messages',
  },
]

describe.skipIf(!need.isMet).each([GATEWAY_TARGET, PROXY_TARGET])(
  'SDKs at $name, unmodified, with base URL and key alone',
  (kind) => {
    it.each(ROWS)(
      need.title('$sdk does a task of three tool calls in every way, and each call verifies'),
      async ({
        sdk,
        words: [program = '', ...words],
        ways,
        anthropicSuffix = '',
        dialect,
        more = 0,
      }) => {
        const folder = await mkdtemp(join(packages.folder, 'work-'))
        const target = await kind.open(service, { name: sdk, folder })
        const { apiKey } = target
        try {
          const run = await target.run(
            [process.execPath, join(packages.folder, program), ...words],
            {
              folder,
              variables: {
                HOME: folder,
                OPENAI_BASE_URL: kind.openai,
                OPENAI_API_KEY: apiKey,
                ANTHROPIC_BASE_URL: `${kind.anthropic}${anthropicSuffix}`,
                ANTHROPIC_API_KEY: apiKey,
              },
            },
          )
          expect(run.code, run.stderr).toBe(0)
          const said = '[demonstration] The tool answered: one two'
          expect(
            run.stdout
              .trim()
              .split('\n')
              .map((line) => JSON.parse(line)),
          ).toEqual(ways.map((name) => ({ name, said, left: 'one two' })))
          const calls = await target.verifyCalls()
          expect(calls.map((call) => call.dialect)).toEqual(
            Array.from({ length: 4 * ways.length + more }, () => dialect),
          )
          expect(calls.some(({ request }) => request.body.stream === true)).toBe(true)
        } finally {
          await target.close()
          await rm(folder, { recursive: true })
        }
      },
    )
  },
)
