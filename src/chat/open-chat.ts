import type { Route } from '../api/route.ts'
import { timed } from '../observability/call-scope.ts'
import { unixMs } from '../runtime/clock.ts'
import { makeId } from '../runtime/make-id.ts'
import { createChatCompletions } from './chat-completions.ts'
import { countTokensRoute } from './count-tokens.ts'
import { createDialectCalls } from './dialect-calls.ts'
import { dialectRoutes } from './dialect-routes.ts'
import { createModels, modelRoutes } from './models.ts'
import { chatRoutes } from './routes.ts'

export function openChat({
  dispatcher,
  limiter,
  idempotency,
  bodyBytesMax,
  log,
  ...offered
}: Parameters<typeof createModels>[0] &
  Pick<Parameters<typeof createChatCompletions>[0], 'dispatcher' | 'log'> &
  Omit<Parameters<typeof chatRoutes>[0], 'completions'>): {
  readonly routes: readonly Route[]
  readonly modelRoutes: readonly Route[]
} {
  const dispatch = timed({ phase: 'node', now: unixMs }, dispatcher.dispatch)
  const completions = createChatCompletions({ dispatcher: { dispatch }, log, now: unixMs, makeId })
  const calls = createDialectCalls({ dispatcher: { dispatch }, log })
  const bounded = { limiter, idempotency, bodyBytesMax }
  return {
    routes: [
      ...chatRoutes({ completions, ...bounded }),
      ...dialectRoutes({ calls, ...bounded }),
      countTokensRoute({ dispatcher, limiter, bodyBytesMax }),
    ],
    modelRoutes: modelRoutes(createModels({ ...offered, dispatcher })),
  }
}
