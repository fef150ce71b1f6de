# The page's scripts in the order in which they are joined.
set(PAGE_SCRIPTS api.js format.js tokens.js prometheus.js charts.js server_charts.js model_card.js playground.js
    main.js)
