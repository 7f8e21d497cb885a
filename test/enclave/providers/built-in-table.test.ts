import { describe, expect, it } from 'vitest'
import { chooseProvider } from '#enclave/protocol/choose-provider.ts'
import { BUILT_IN_PROVIDERS } from '#enclave/providers/built-in-table.ts'
import { parseProviderTable } from '#enclave/providers/parse-table.ts'

describe('the built-in provider table', () => {
  it('the built-in provider table would be accepted as a provider file', () => {
    expect(parseProviderTable(Buffer.from(JSON.stringify(BUILT_IN_PROVIDERS)))).toEqual(
      BUILT_IN_PROVIDERS,
    )
  })

  it('the built-in provider table uses https throughout', () => {
    expect(BUILT_IN_PROVIDERS.filter(({ origin }) => !origin.startsWith('https://'))).toEqual([])
  })

  it.each([
    ['gpt-4o', 'openai'],
    ['o3-mini', 'openai'],
    ['chatgpt-4o-latest', 'openai'],
    ['ft:gpt-4o-mini-2024-07-18:acme::abc123', 'openai'],
    ['claude-sonnet-4-5-20250929', 'anthropic'],
    ['gemini-2.5-flash', 'google'],
    ['mistral-large-latest', 'mistral'],
    ['deepseek-chat', 'deepseek'],
    ['grok-4', 'xai'],
    ['llama-3.3-70b-versatile', 'groq'],
    ['meta-llama/llama-4-scout-17b-16e-instruct', 'groq'],
    ['openai/gpt-oss-120b', 'groq'],
    ['meta-llama/Llama-3.3-70B-Instruct-Turbo', 'together'],
    ['openrouter/auto', 'openrouter'],
    ['openai/gpt-4o', 'openrouter'],
    ['anthropic/claude-sonnet-4.5', 'openrouter'],
    ['meta-llama/llama-3.3-70b-instruct', 'openrouter'],
    ['deepseek/deepseek-chat', 'openrouter'],
  ])('the built-in provider table sends %s to %s', (model, provider) => {
    expect(chooseProvider(BUILT_IN_PROVIDERS, model)?.name).toBe(provider)
  })

  it.each([
    '',
    'demo/echo',
    'no-such-model',
    'GPT-4o',
    'evil/gpt-4o',
    'o11',
    'https://example.com/gpt-4o',
  ])('the built-in provider table sends %j nowhere', (model) => {
    expect(chooseProvider(BUILT_IN_PROVIDERS, model)).toBe(null)
  })

  it('the built-in provider table has no pattern that an earlier provider makes useless', () => {
    const useless = BUILT_IN_PROVIDERS.flatMap(({ name, models }) =>
      models.filter(
        (pattern) =>
          chooseProvider(BUILT_IN_PROVIDERS, pattern.replaceAll('*', 'x'))?.name !== name,
      ),
    )
    expect(useless).toEqual([])
  })
})
