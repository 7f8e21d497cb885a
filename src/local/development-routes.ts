import { z } from 'zod'
import { ApiError } from '../api/errors.ts'
import { defineRoute, type Route } from '../api/route.ts'
import type { DevelopmentExpectations } from './expectations.ts'

const expectationsSchema = z.strictObject({
  measurements: z.array(z.record(z.string(), z.string())),
  configurations: z.array(z.string()),
  roots: z.array(z.string()),
})

/**
 * Describes the simulated enclaves to the gateway's own pages. With null (the gateway started no
 * enclaves), the route answers 404.
 */
export function developmentRoutes(expectations: DevelopmentExpectations | null): readonly Route[] {
  return [
    defineRoute({
      method: 'GET',
      path: '/development/expectations',
      tag: 'Service',
      scope: 'public',
      summary: 'How a development gateway describes its enclaves',
      description:
        'Development only: every other gateway answers 404. The same as DATA_DIR/expect.json, ' +
        'for the pages of this gateway. The gateway describes itself, so this proves nothing to other people.',
      reply: { name: 'DevelopmentExpectations', schema: expectationsSchema },
      errors: ['not_found'],
      handler: async () => {
        if (expectations === null)
          throw new ApiError('not_found', 'This is not a development gateway')
        return {
          measurements: expectations.measurements.map((set) => ({ ...set })),
          configurations: [...expectations.configurations],
          roots: [...expectations.roots],
        }
      },
    }),
  ]
}
