import type { Route } from '../../src/api/route.ts'
import { readGatewayConfig } from '../../src/config.ts'
import { type Capabilities, listRoutes } from '../../src/routes.ts'

/** Stands for any part of the gateway that no test asks for anything. */
const unasked: never = new Proxy(() => unasked, { get: () => unasked }) as never

/** Every route of the gateway as it is declared; none of them can serve. */
export const ROUTES: readonly Route[] = listRoutes(
  readGatewayConfig({}),
  new Proxy({} as Capabilities, { get: (_, part) => (part === 'now' ? Date.now : unasked) }),
)
