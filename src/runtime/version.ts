/** Version that our processes report of themselves: that of the package. */
export const VERSION = '0.1.0'
