SELECT 'Rota runs' AS news, current_timestamp AS at;
