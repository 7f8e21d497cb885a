import { z } from 'zod'
import { ApiError } from '../api/errors.ts'
import { defineRoute, type Route } from '../api/route.ts'
import type { DevelopmentPolicy } from './policy.ts'

const policySchema = z.strictObject({
  enclaves: z.strictObject({
    measurements: z.array(z.record(z.string(), z.string())),
    configurations: z.array(z.string()),
    roots: z.array(z.string()),
  }),
})

/**
 * Describes the simulated enclaves to the gateway's own pages. With null (the gateway started no
 * enclaves), the route answers 404.
 */
export function developmentRoutes(policy: DevelopmentPolicy | null): readonly Route[] {
  return [
    defineRoute({
      method: 'GET',
      path: '/development/policy',
      tag: 'Service',
      scope: 'public',
      summary: 'The policy that accepts the enclaves of a development gateway',
      description:
        'Development only: every other gateway answers 404. The same as DATA_DIR/policy.json, ' +
        'for the pages of this gateway. The gateway describes itself, so this proves nothing to other people.',
      reply: { name: 'DevelopmentPolicy', schema: policySchema },
      errors: ['not_found'],
      handler: async () => {
        if (policy === null) throw new ApiError('not_found', 'This is not a development gateway')
        const { measurements, configurations, roots } = policy.enclaves
        return {
          enclaves: {
            measurements: measurements.map((set) => ({ ...set })),
            configurations: [...configurations],
            roots: [...roots],
          },
        }
      },
    }),
  ]
}
