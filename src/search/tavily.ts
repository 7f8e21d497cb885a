import type { SearchAdapter } from './adapter.ts'
import { expectObject, listOf, memberOf } from './answer-members.ts'

/** Tavily's search, at its basic depth: one credit for each. */
export const TAVILY: SearchAdapter = {
  defaultUrl: 'https://api.tavily.com',
  request: ({ query, maxResults }, apiKey) => ({
    method: 'POST',
    path: '/search',
    headers: { 'content-type': 'application/json', authorization: `Bearer ${apiKey}` },
    body: JSON.stringify({ query, max_results: maxResults, search_depth: 'basic' }),
  }),
  readItems: (answer) => {
    expectObject(answer)
    return listOf(answer, 'results').map((item) => ({
      title: memberOf(item, 'title'),
      url: memberOf(item, 'url'),
      snippet: memberOf(item, 'content'),
    }))
  },
}
