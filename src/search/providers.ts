import type { SearchAdapter } from './adapter.ts'
import { BRAVE } from './brave.ts'
import { SEARXNG } from './searxng.ts'
import { SERPAPI } from './serpapi.ts'
import { TAVILY } from './tavily.ts'

/** The providers that can be chosen. */
export const SEARCH_PROVIDERS = ['searxng', 'brave', 'tavily', 'serpapi'] as const

export type SearchProviderName = (typeof SEARCH_PROVIDERS)[number]

/** How each of them is asked, and its answers are read. */
export const SEARCH_ADAPTERS: Readonly<Record<SearchProviderName, SearchAdapter>> = {
  searxng: SEARXNG,
  brave: BRAVE,
  tavily: TAVILY,
  serpapi: SERPAPI,
}
