/**
 * Leaving this page would lose the tab's key, so links to other pages open a new tab. The new tab
 * gets the policy (kit/tab-policy.ts), and then removes its reference to the old tab.
 */
export const NEW_TAB = { target: '_blank', rel: 'opener' } as const
